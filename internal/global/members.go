package global

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/global/jsondoc"
	"vestibule/internal/node"
)

// statusEvery is the minimum interval between published states of the data centres.
const statusEvery = 2 * time.Second

// tendMembers creates the list of data centres, restores it if the store lost it, and removes drained data centres.
// Every write is compare-and-set: it tries again after a concurrent command.
func (p *publisher) tendMembers(ctx context.Context, now time.Time, c *census) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.s.Docs.Get(ctx, node.MembersDocument)
	if err != nil {
		return err
	}
	have := (*node.Members)(nil)
	if stored != nil {
		if have, err = node.DecodeMembers(stored); err != nil {
			return fmt.Errorf("the store holds no list of data centres that can be read: %w", err)
		}
	}
	own := p.copies.newest(p.s.fleet.Members())
	next := own
	switch {
	case own == nil && have == nil && c.Unfounded:
		next = node.NewMembers(now, p.s.Config.DataCenters)
		for _, d := range c.Enrolled {
			if i := next.Find(d.Name); i >= 0 {
				next.List[i].ClusterID = d.ClusterID
			}
		}
	case own == nil:
		return nil // it is created once every data centre is heard, or the watch is about to bring it
	case have != nil && have.Version > own.Version, have != nil && have.Version == own.Version && !c.changes():
		return nil
	case have != nil && have.Version == own.Version && own.Version == c.Members:
		for _, name := range c.Drained {
			if next, err = next.Remove(now, name); err != nil {
				return err
			}
			p.s.log.Info("data centre has drained and leaves the list", slog.String("dc", name))
		}
		for _, d := range c.Enrolled {
			next = next.Enrol(now, d.Name, d.ClusterID)
			p.s.log.Info("the list of data centres holds a cluster ID", slog.String("dc", d.Name), node.ClusterID(d.ClusterID))
		}
		for _, name := range c.Released {
			next = next.Release(now, name)
			p.s.log.Info("data centre that was removed by force has no permits any more, and leaves the list",
				slog.String("dc", name))
		}
	case have != nil && have.Version == own.Version:
		return nil // drained data centres are known once the allocator has the list
	}
	data, err := node.EncodeMembers(next)
	if err != nil {
		return err
	}
	if _, err := p.s.Docs.Put(ctx, node.MembersDocument, data, revision); err != nil {
		return err
	}
	p.s.log.Info("list of data centres published",
		slog.Uint64("version", next.Version), slog.Int("data_centers", len(next.List)))
	return nil
}

// publishStatus publishes the outstanding allocations of the data centres if they have changed. The first of a term
// continues the silences that the predecessor published.
func (p *publisher) publishStatus(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if !p.recalled {
		last, revision, err := jsondoc.Read[node.MembersStatus](ctx, p.s.Docs, node.MembersStatusDocument)
		p.recalled = err == nil || revision != 0
		if err != nil && p.recalled {
			return fmt.Errorf("the state that a predecessor published cannot be read, it is replaced: %w", err)
		}
		if err != nil {
			return err
		}
		if last != nil {
			last.Silences(now, p.recallSilence)
		}
	}
	c := p.census()
	if !c.leads {
		return nil
	}
	st := node.MembersStatus{Version: c.Members}
	if c.outdated() {
		st.Newest = c.Newest
	}
	for _, d := range c.centres {
		st.List = append(st.List, node.CentreState{
			Name: d.Name, ClusterID: d.ClusterID, State: d.Standing.String(), Reporting: d.Reporting, Held: d.Held, RateHeld: d.RateHeld,
			Sessions: d.Sessions, Overcommit: d.Overcommit, Silent: node.SilentSeconds(d.Heard),
		})
	}
	same, err := json.Marshal(st)
	if err != nil || bytes.Equal(same, p.status) {
		return err
	}
	st.At = now
	_, revision, err := p.s.Docs.Get(ctx, node.MembersStatusDocument)
	if err != nil {
		return err
	}
	if err := jsondoc.Write(ctx, p.s.Docs, node.MembersStatusDocument, st, revision); err != nil {
		return err
	}
	p.status = same
	return nil
}
