package regional

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// desk carries out the orders of operators in one term.
type desk struct {
	s   *Server
	agg *region.Aggregator // s.mu guards it
}

// obey carries out an order of an operator that came by the API, and sends the result to the globals. A data centre
// that has the name of a listed one ignores it: the other one is meant.
func (d desk) obey(data []byte) {
	var o wire.Order
	if !d.s.understood("order", json.Unmarshal(data, &o)) || d.isCopy() {
		return
	}
	done := wire.OrderDone{ID: o.ID}
	switch {
	case o.Begin:
		done.ForgetAnswer = d.begin()
	case o.Number != "":
		done.Sessions, done.Error = d.find(o.Number)
	default:
		done.ForgetAnswer = d.forgetEdge(&o.Forget)
	}
	answer, err := json.Marshal(done)
	if err == nil {
		err = d.s.Global.Publish(wire.OrderDoneSubject(d.s.Config.DataCenter), answer)
	}
	if err != nil {
		d.s.log.Error("result of an order not sent", slog.Any("error", err))
	}
}

// begin handles an operator's declaration that nobody was ever admitted in the fleet. A node that has a ticket key
// knows better.
func (d desk) begin() (out wire.ForgetAnswer) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	err := region.ErrBegun
	if len(d.s.fleet.Ring().Keys) == 0 {
		err = d.agg.Begin(d.s.Clock.Now())
	}
	if err != nil {
		d.s.log.Warn("the data centre does not begin anew", slog.Any("error", err))
		return wire.ForgetAnswer{Error: err.Error()}
	}
	d.s.log.Warn("an operator declared that nobody was ever admitted in this fleet")
	return wire.ForgetAnswer{Done: d.s.Config.DataCenter + " admits visitors"}
}

// find returns the sessions with a reference number.
func (d desk) find(text string) (out []wire.FoundSession, fault string) {
	number, err := ticket.ParseNumber(text)
	if err != nil {
		return nil, err.Error()
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	rooms := d.s.fleet.Set()
	for _, s := range d.agg.Find(d.s.Clock.Now(), func(id uint64) bool { return ticket.HasNumber(id, number) }) {
		if r := rooms.ByID(s.Room); r != nil {
			out = append(out, wire.FoundSession{Room: r.Name, Edge: s.Edge, Until: time.UnixMilli(int64(s.Until)).UTC()})
		}
	}
	return out, ""
}

func (d desk) isCopy() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.agg.Status(d.s.Clock.Now()).Copy != 0
}

// forget handles an operator's declaration, by NATS, that an edge has ended.
func (d desk) forget(question []byte) []byte {
	var ask wire.ForgetAsk
	out := wire.ForgetAnswer{}
	if err := json.Unmarshal(question, &ask); err != nil {
		out.Error = err.Error()
	} else {
		out = d.forgetEdge(&ask)
	}
	return d.encoded(&out)
}

// encoded returns an answer by NATS.
func (d desk) encoded(out *wire.ForgetAnswer) []byte {
	answer, err := json.Marshal(out)
	if err != nil {
		d.s.log.Error("answer not written", slog.Any("error", err))
	}
	return answer
}

// forgetEdge handles an operator's declaration that an edge has ended.
func (d desk) forgetEdge(ask *wire.ForgetAsk) (out wire.ForgetAnswer) {
	var err error
	processes := 0
	if !ask.All || ask.Edge != "" {
		err = wire.CheckName(ask.Edge)
	}
	if err == nil {
		var f region.Forgotten
		d.s.mu.Lock()
		f, err = d.agg.Forget(d.s.Clock.Now(), ask.Edge, ask.Instance, ask.Over && ask.All)
		d.s.mu.Unlock()
		who := ask.Edge
		processes = len(f.Instances)
		if ask.All {
			who = "silent edges"
		}
		out.Done = fmt.Sprintf("%d processes of %s have ended; their permits (%d known sessions) stay reserved for %v at most",
			processes, who, f.Sessions, f.Within.Round(time.Second))
	}
	switch {
	case err != nil:
		out = wire.ForgetAnswer{Error: err.Error()}
		d.s.log.Warn("edge not forgotten", slog.Any("error", err))
	case processes == 0:
		out.Done = "every edge reports or has ended: nothing was declared"
	default:
		d.s.log.Warn("an operator declared an edge ended",
			slog.String("edge", ask.Edge), slog.Bool("all", ask.All), slog.Bool("over", ask.Over),
			slog.String("result", out.Done))
	}
	return out
}

// otherReports returns an error if the listed data centre of this name reports to global: then nothing of it was lost.
// It returns nil where that is not known, since the operator's word counts.
func (d desk) otherReports() error {
	d.s.mu.Lock()
	listed := d.agg.Status(d.s.Clock.Now()).Copy
	d.s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), statusWithin)
	defer cancel()
	data, _, err := d.s.Docs.Get(ctx, node.MembersStatusDocument)
	var st node.MembersStatus
	if err == nil && data != nil {
		err = json.Unmarshal(data, &st)
	}
	if err != nil {
		d.s.log.Warn("it is not known whether the listed data centre reports", slog.Any("error", err))
		return nil //nolint:nilerr // it is logged
	}
	for _, c := range st.List {
		if listed != 0 && c.Name == d.s.Config.DataCenter && c.ClusterID == listed && c.Reporting {
			return fmt.Errorf("the listed data centre %s (cluster ID %016x) reports to global: it is not lost; "+
				"give this one another name", c.Name, listed)
		}
	}
	return nil
}

// statusWithin is how long a rejoin waits for global's published state.
const statusWithin = 2 * time.Second

// rejoin handles an operator's declaration that this data centre is the listed one.
func (d desk) rejoin() []byte {
	err := d.otherReports()
	if err == nil {
		d.s.mu.Lock()
		err = d.agg.Rejoin()
		d.s.mu.Unlock()
	}
	out := wire.ForgetAnswer{Done: fmt.Sprintf("%s continues as the listed data centre; its earlier permits stay reserved until they expire", d.s.Config.DataCenter)}
	if err != nil {
		out = wire.ForgetAnswer{Error: err.Error()}
	}
	d.s.log.Warn("an operator declared this the listed data centre", slog.Any("error", err))
	return d.encoded(&out)
}
