// Package members reads and changes the list of the fleet's data centres in the store, by compare-and-set: for the API,
// and for vestibule fleet where no global can be reached.
package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/jsondoc"
	"vestibule/internal/node"
)

// The states of a data centre.
const (
	Active   = string(node.Active)
	Draining = string(node.Draining)
	Removed  = string(node.Removed)
)

// ErrNoMember means that the list has no such data centre.
var ErrNoMember = node.ErrNoMember

// List is the stored list. Its methods are safe for concurrent use.
type List struct{ Docs wire.DocumentStore }

// RefusedError says why a change of the list is not possible. Nothing was changed.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// ErrUnfounded means that no list is stored.
var ErrUnfounded = errors.New("the store holds no list of data centres yet: global makes it once every data centre in its data_centers has reported; see the alarms of its /readyz")

func (l *List) get(ctx context.Context) (*node.Members, uint64, error) {
	data, revision, err := l.Docs.Get(ctx, node.MembersDocument)
	if err != nil {
		return nil, 0, err
	}
	if data == nil {
		return nil, 0, &RefusedError{ErrUnfounded}
	}
	m, err := node.DecodeMembers(data)
	return m, revision, err
}

// status returns the last status published by the leading global; nil for none.
func (l *List) status(ctx context.Context) (*node.MembersStatus, error) {
	st, _, err := jsondoc.Read[node.MembersStatus](ctx, l.Docs, node.MembersStatusDocument)
	return st, err
}

// Add adds a data centre, or makes one active again that drains or was removed.
func (l *List) Add(ctx context.Context, name string) error {
	return l.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.Add(now, name) })
}

// Drain ends admissions in a data centre. The leading global removes it once all its permits are returned.
func (l *List) Drain(ctx context.Context, name string) error {
	return l.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.Drain(now, name) })
}

// Remove removes a data centre. Without force it only says why not: an empty one leaves by itself.
func (l *List) Remove(ctx context.Context, name string, force bool) error {
	if !force {
		if err := l.mayRemove(ctx, name); err != nil {
			return err
		}
	}
	return l.change(ctx,
		func(now time.Time, m *node.Members) (*node.Members, error) { return m.RemoveByForce(now, name) })
}

// change changes the list, and tries again after a concurrent change.
func (l *List) change(ctx context.Context, change func(time.Time, *node.Members) (*node.Members, error)) error {
	for {
		m, revision, err := l.get(ctx)
		if err != nil {
			return err
		}
		st, err := l.status(ctx)
		if err != nil {
			return err
		}
		if st != nil && max(st.Version, st.Newest) > m.Version {
			return &RefusedError{fmt.Errorf("the store came back older: it holds version %d of the list, and the fleet knows version %d; a global that knows that one gives it back to the store",
				m.Version, max(st.Version, st.Newest))}
		}
		next, err := change(time.Now(), m)
		if err != nil {
			return &RefusedError{err}
		}
		data, err := node.EncodeMembers(next)
		if err != nil {
			return err
		}
		_, err = l.Docs.Put(ctx, node.MembersDocument, data, revision)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, wire.ErrChanged):
			return fmt.Errorf("it is not known whether the list was changed, see vestibule fleet list: %w", err)
		}
	}
}

// mayRemove returns the reason why a data centre cannot be removed from the list, if any.
func (l *List) mayRemove(ctx context.Context, name string) error {
	m, _, err := l.get(ctx)
	if err != nil {
		return err
	}
	refuse := func(format string, args ...any) error { return &RefusedError{fmt.Errorf(format, args...)} }
	i := m.Find(name)
	if i < 0 {
		return &RefusedError{m.Unknown(name)}
	}
	if m.List[i].State != node.Draining {
		return refuse("data centre %q does not drain: vestibule fleet drain %s first; it leaves the list by itself", name,
			name)
	}
	st, err := l.status(ctx)
	if err != nil {
		return err
	}
	what := "no global has reported its permits"
	if st != nil {
		for _, c := range st.List {
			if c.Name == name {
				what = fmt.Sprintf("%d permits of T and %d of R are out, %d sessions (as of %s)", c.Held, c.RateHeld, c.Sessions,
					st.At.UTC().Format(time.RFC3339))
				if c.Overcommit != 0 {
					what += fmt.Sprintf("; %d sessions may go on at edges that are cut off or count as lost, until these report; "+
						"where they have ended, vestibule fleet forget", c.Overcommit)
				}
				if !c.Reporting {
					what = "it does not report; at its last report, " + what
				}
			}
		}
	}
	return refuse("data centre %q is draining and leaves the list when it is empty: %s; --force removes it now: under partition_policy serve its sessions may exceed the limit, under cap its permits wait for its last ticket",
		name, what)
}

// View returns the list, with the permits that the leading global has reported, and data centres that report but are
// not listed.
func (l *List) View(ctx context.Context) (*api.Members, error) {
	m, _, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	st, err := l.status(ctx)
	if err != nil {
		return nil, err
	}
	out := &api.Members{Version: int64(m.Version), DataCenters: []api.Member{}}
	var listed []node.CentreState
	var others []api.Member
	if st != nil {
		out.StatusVersion, out.AsOf = int64(st.Version), &st.At
		for _, c := range st.List {
			i := m.Find(c.Name)
			added := i >= 0 && st.Version < m.Version && (m.List[i].ClusterID == 0 || m.List[i].ClusterID == c.ClusterID)
			if c.State != wire.Unlisted.String() || added {
				listed = append(listed, c)
				continue
			}
			shown := memberOf(&c, c.State)
			if i >= 0 {
				shown.CopyClusterId = fmt.Sprintf("%016x", c.ClusterID)
			}
			others = append(others, shown)
		}
	}
	for _, d := range m.List {
		i := slices.IndexFunc(listed, func(c node.CentreState) bool { return c.Name == d.Name })
		if i < 0 {
			out.DataCenters = append(out.DataCenters, api.Member{Name: d.Name, State: string(d.State)})
			continue
		}
		out.DataCenters = append(out.DataCenters, memberOf(&listed[i], string(d.State)))
	}
	out.DataCenters = append(out.DataCenters, others...)
	return out, nil
}

func memberOf(c *node.CentreState, state string) api.Member {
	return api.Member{
		Name: c.Name, State: state, Known: true, Told: c.Reporting, Permits: c.Held, RatePermits: c.RateHeld,
		Sessions: int64(c.Sessions), Overcommit: c.Overcommit,
	}
}
