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

// obey carries out an order of an operator that came by the API, and sends the result to the globals. A data centre
// that has the name of a listed one ignores it: the other one is meant.
func (l *leadership) obey(data []byte) {
	var o wire.Order
	if !l.s.understood("order", json.Unmarshal(data, &o)) || l.isCopy() {
		return
	}
	done := wire.OrderDone{ID: o.ID}
	switch {
	case o.Begin:
		done.ForgetAnswer = l.begin()
	case o.Number != "":
		done.Sessions, done.Error = l.find(o.Number)
	default:
		done.ForgetAnswer = l.forgetEdge(&o.Forget)
	}
	answer, err := json.Marshal(done)
	if err == nil {
		err = l.s.Global.Publish(wire.OrderDoneSubject(l.s.Config.DataCenter), answer)
	}
	if err != nil {
		l.s.log.Error("result of an order not sent", slog.Any("error", err))
	}
}

// begin handles an operator's declaration that nobody was ever admitted in the fleet. A node that has a ticket key
// knows better.
func (l *leadership) begin() (out wire.ForgetAnswer) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	err := region.ErrBegun
	if len(l.s.fleet.Ring().Keys) == 0 {
		err = l.agg.Begin(l.s.Clock.Now())
	}
	if err != nil {
		l.s.log.Warn("the data centre does not begin anew", slog.Any("error", err))
		return wire.ForgetAnswer{Error: err.Error()}
	}
	l.s.log.Warn("an operator declared that nobody was ever admitted in this fleet")
	return wire.ForgetAnswer{Done: l.s.Config.DataCenter + " admits visitors"}
}

// find returns the sessions with a reference number.
func (l *leadership) find(text string) (out []wire.FoundSession, fault string) {
	number, err := ticket.ParseNumber(text)
	if err != nil {
		return nil, err.Error()
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	rooms := l.s.fleet.Set()
	for _, s := range l.agg.Find(l.s.Clock.Now(), func(id uint64) bool { return ticket.HasNumber(id, number) }) {
		if r := rooms.ByID(s.Room); r != nil {
			out = append(out, wire.FoundSession{Room: r.Name, Edge: s.Edge, Until: time.UnixMilli(int64(s.Until)).UTC()})
		}
	}
	return out, ""
}

func (l *leadership) isCopy() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.agg.Status(l.s.Clock.Now()).Copy != 0
}

// forget handles an operator's declaration, by NATS, that an edge has ended.
func (l *leadership) forget(question []byte) []byte {
	var ask wire.ForgetAsk
	out := wire.ForgetAnswer{}
	if err := json.Unmarshal(question, &ask); err != nil {
		out.Error = err.Error()
	} else {
		out = l.forgetEdge(&ask)
	}
	answer, err := json.Marshal(out)
	if err != nil {
		l.s.log.Error("answer not written", slog.Any("error", err))
	}
	return answer
}

// forgetEdge handles an operator's declaration that an edge has ended.
func (l *leadership) forgetEdge(ask *wire.ForgetAsk) (out wire.ForgetAnswer) {
	var err error
	processes := 0
	if !ask.All || ask.Edge != "" {
		err = wire.CheckName(ask.Edge)
	}
	if err == nil {
		var f region.Forgotten
		l.s.mu.Lock()
		f, err = l.agg.Forget(l.s.Clock.Now(), ask.Edge, ask.Instance, ask.Over && ask.All)
		l.s.mu.Unlock()
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
		l.s.log.Warn("edge not forgotten", slog.Any("error", err))
	case processes == 0:
		out.Done = "every edge reports or has ended: nothing was declared"
	default:
		l.s.log.Warn("an operator declared an edge ended",
			slog.String("edge", ask.Edge), slog.Bool("all", ask.All), slog.Bool("over", ask.Over),
			slog.String("result", out.Done))
	}
	return out
}

// otherReports returns an error if the listed data centre of this name reports to global: then nothing of it was lost.
// It returns nil where that is not known, since the operator's word counts.
func (l *leadership) otherReports() error {
	l.s.mu.Lock()
	listed := l.agg.Status(l.s.Clock.Now()).Copy
	l.s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), statusWithin)
	defer cancel()
	data, _, err := l.s.Docs.Get(ctx, node.MembersStatusDocument)
	var st node.MembersStatus
	if err == nil && data != nil {
		err = json.Unmarshal(data, &st)
	}
	if err != nil {
		l.s.log.Warn("it is not known whether the listed data centre reports", slog.Any("error", err))
		return nil //nolint:nilerr // it is said
	}
	for _, d := range st.List {
		if listed != 0 && d.Name == l.s.Config.DataCenter && d.ClusterID == listed && d.Told {
			return fmt.Errorf("the listed data centre %s (cluster ID %016x) reports to global: it is not lost; "+
				"give this one another name", d.Name, listed)
		}
	}
	return nil
}

// statusWithin is how long a rejoin waits for what global has published.
const statusWithin = 2 * time.Second

// rejoin handles an operator's declaration that this data centre is the listed one.
func (l *leadership) rejoin() []byte {
	err := l.otherReports()
	if err == nil {
		l.s.mu.Lock()
		err = l.agg.Rejoin()
		l.s.mu.Unlock()
	}
	out := wire.ForgetAnswer{Done: fmt.Sprintf("%s continues as the listed data centre; its earlier permits stay reserved until they expire", l.s.Config.DataCenter)}
	if err != nil {
		out = wire.ForgetAnswer{Error: err.Error()}
	}
	l.s.log.Warn("an operator declared this the listed data centre", slog.Any("error", err))
	answer, err := json.Marshal(out)
	if err != nil {
		l.s.log.Error("answer not written", slog.Any("error", err))
	}
	return answer
}
