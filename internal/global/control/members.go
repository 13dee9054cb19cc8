package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
)

// memberService serves the list of data centres.
type memberService struct {
	clock
	auditor
	members *members.List
	forget  ForgetFunc
}

// centreTarget begins the targets of audit entries about data centres. Their names follow.
const centreTarget = "data centre "

func (s *memberService) list(ctx context.Context, _ *request) (any, error) {
	all, err := s.members.View(ctx)
	return all, refusedMember(err)
}

func (s *memberService) put(ctx context.Context, q *request) (any, error) {
	var f faults
	state, ok := f.text("/state", f.object("", q.body, "state")["state"])
	change := s.members.Add
	switch state {
	case members.Active:
	case members.Draining:
		change = s.members.Drain
	default:
		if ok {
			f.add("/state", "state must be active or draining, got %q", short(state))
		}
	}
	if f.n > 0 {
		return nil, f.err()
	}
	return s.change(ctx, q, state, change)
}

func (s *memberService) delete(ctx context.Context, q *request) (any, error) {
	force := q.URL.Query().Get("force") == "true"
	return s.change(ctx, q, members.Removed, func(ctx context.Context, name string) error {
		return s.members.Remove(ctx, name, force)
	})
}

// change makes a change of one data centre, with an audit entry before it.
func (s *memberService) change(
	ctx context.Context, q *request, state string, change func(ctx context.Context, name string) error,
) (any, error) {
	name := q.PathValue("data_center")
	all, err := s.members.View(ctx)
	if err != nil {
		return nil, refusedMember(err)
	}
	type member struct {
		State string `json:"state"`
	}
	var before *member
	for _, d := range all.DataCenters {
		if d.Name == name {
			before = &member{d.State}
		}
	}
	err = s.audited(ctx, s.now(), centreTarget+name, before, &member{state}, func() error { return change(ctx, name) })
	if err != nil {
		return nil, refusedMember(err)
	}
	return s.list(ctx, q)
}

// forgetEdge declares that an edge of a data centre has ended for good.
func (s *memberService) forgetEdge(ctx context.Context, q *request) (any, error) {
	var f faults
	m, dc := f.object("", q.body, "edge", "all", "instance", "over"), q.PathValue("data_center")
	ask := wire.ForgetAsk{}
	ask.Edge, _ = f.text("/edge", m["edge"])
	ask.All, _ = f.flag("/all", m["all"])
	ask.Over, _ = f.flag("/over", m["over"])
	instance, _ := f.text("/instance", m["instance"])
	if err := wire.CheckName(dc); err != nil {
		f.add("", "data centre: %v", err)
	}
	if err := wire.CheckName(ask.Edge); err != nil && !ask.All {
		f.add("/edge", "edge: %v", err)
	}
	if ask.Over && !ask.All {
		f.add("/over", "over needs all: nobody can tell the sessions of one edge apart")
	}
	if ask.All && (ask.Edge != "" || instance != "") {
		f.add("/all", "all names every silent edge, so edge and instance must be left out")
	}
	if instance != "" {
		var err error
		if ask.Instance, err = strconv.ParseUint(instance, 10, 64); err != nil || ask.Instance == 0 {
			f.add("/instance", "instance must be a whole number above zero, got %q", short(instance))
		}
	}
	if f.n > 0 {
		return nil, f.err()
	}
	all, err := s.members.View(ctx) // without it the regional answers, or nobody
	if err == nil && !slices.ContainsFunc(all.DataCenters, func(d api.Member) bool { return d.Name == dc }) {
		names := make([]string, len(all.DataCenters))
		for i := range all.DataCenters {
			names[i] = all.DataCenters[i].Name
		}
		return nil, refusef(http.StatusNotFound, codeNotFound, "no data centre %q is listed or reports%s", short(dc),
			room.Meant(dc, names))
	}
	what := struct {
		Forget string `json:"forget"`
	}{cmp.Or(ask.Edge, "every silent edge")}
	if ask.Over {
		what.Forget += " and its sessions"
	}
	failed, err := Announce(ctx, s.journal, s.now(), centreTarget+dc, struct{}{}, what)
	if err != nil {
		return nil, err
	}
	answer, err := s.forget(ctx, dc, ask)
	if err != nil {
		return nil, refusef(http.StatusServiceUnavailable, codeNotNow, "%v", err)
	}
	if answer.Error != "" {
		refusal := refusef(http.StatusConflict, codeInvalid, "%s", answer.Error)
		return nil, undone(ctx, s.log, centreTarget+dc, failed, refusal)
	}
	return api.Forgotten{Done: answer.Done}, nil
}

// initialize declares that nobody was ever admitted in the fleet.
func (s *memberService) initialize(ctx context.Context, _ *request) (any, error) {
	what := struct {
		Initialize bool `json:"initialize"`
	}{true}
	var done string
	err := s.audited(ctx, s.now(), "fleet", struct{}{}, what, func() (err error) {
		done, err = s.members.Init(ctx)
		return err
	})
	return api.Forgotten{Done: done}, refusedMember(err)
}

// refusedMember returns the refusal of a change that the list does not permit.
func refusedMember(err error) error {
	refused, ok := errors.AsType[*members.RefusedError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, members.ErrNoMember):
		return refusef(http.StatusNotFound, codeNotFound, "%v", refused)
	}
	return refusef(http.StatusConflict, codeInvalid, "%v", refused)
}
