package control

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/roomstore"
)

// Session is a session of a person of the OpenID Connect provider.
type Session struct {
	ID         string    // digest of its secret
	Who        Principal // with the role that the configuration gives now, "" for none
	Made, Seen time.Time
}

// Sessions are those of persons.
type Sessions interface {
	// List lists them, the newest first.
	List(ctx context.Context) ([]Session, error)

	// End ends one at all globals. It returns false if there is no such session.
	End(ctx context.Context, id string) (bool, error)
}

// sessionService ends sessions of persons.
type sessionService struct {
	clock
	auditor
	sessions Sessions // nil for none
	throttle *Throttle
}

// sessionTarget begins the target of audit entries about sessions; the ID of the person follows.
const sessionTarget = "session."

// endedSession is the part of a session that an audit entry shows.
type endedSession struct {
	Name string `json:"name"` // of the person
	Role Role   `json:"role"`
}

// Sessions lists the sessions of persons, for an admin.
func (s *Server) Sessions(ctx context.Context, who Principal) ([]Session, error) {
	if err := who.needs(Admin); err != nil {
		return nil, err
	}
	if !who.mayIn("", "end-session") {
		return nil, refusef(http.StatusForbidden, codeForbidden,
			"Not allowed: this concerns all rooms, and you have some of them")
	}
	if s.sessions.sessions == nil {
		return nil, nil
	}
	out, err := s.sessions.sessions.List(ctx)
	if err != nil {
		return nil, explain(err)
	}
	return out, nil
}

// EndSession ends a session of a person, for an admin.
func (s *Server) EndSession(ctx context.Context, who Principal, remote, id, reason string) error {
	all, err := s.Sessions(ctx, who)
	if err != nil {
		return err
	}
	if !goodReason(reason) {
		return badReason()
	}
	for _, one := range all {
		if one.ID != id {
			continue
		}
		ctx := who.as(ctx, remote, "end-session", reason)
		before := &endedSession{one.Who.Name, one.Who.Role}
		err := s.sessions.audited(ctx, s.sessions.now(), sessionTarget+one.Who.ID, before, nil, func() error {
			_, err := s.sessions.sessions.End(ctx, id)
			return err
		})
		if err != nil {
			return explain(err)
		}
		return nil
	}
	return errNotFound
}

// needs returns the refusal of a principal without a role.
func (who Principal) needs(role Role) error {
	if who.Role.May(role) {
		return nil
	}
	return refusef(http.StatusForbidden, codeForbidden, "This needs the role %s. You have the role %s.", role, who.Role)
}

// RefusedLogin notes a refused login in the audit stream: who tried, "" if that is unknown, from where, and why. Of an
// address only the first within a minute is noted.
func (s *Server) RefusedLogin(ctx context.Context, who, from, why string) {
	x := s.sessions
	now := x.now()
	x.throttle.Failed(now, from)
	if !x.throttle.First(now, from) {
		return
	}
	ctx = roomstore.By(ctx, audit.By{Name: cmp.Or(who, "unknown"), From: from, Operation: "log-in"})
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := Announce(ctx, x.journal, now, loginTarget, nil, refusedLogin{Refused: why}); err != nil {
		x.log.Warn("control: a refused login is not in the audit stream",
			slog.String("from", from), slog.String("why", why), slog.Any("error", err))
	}
}
