package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
)

// Users are the people that may log in.
type Users interface {
	List(ctx context.Context) ([]User, error)

	// Invite makes a user unless there is one, and returns the path of a link by which the user sets a password.
	Invite(ctx context.Context, name string, role Role, rooms []string) (path string, err error)
	Change(ctx context.Context, name string, role Role, rooms []string) error
	Remove(ctx context.Context, name string) error
}

// User is a person that may log in.
type User struct {
	Name         string
	Role         Role
	Rooms        []string // IDs of the only rooms; none for all
	SecondFactor bool
	Invited      bool // has not set a password yet
	Made         time.Time
}

// RuleError is a rule about users that a change breaks.
type RuleError struct{ Rule string }

func (e *RuleError) Error() string { return e.Rule }

// userService serves users.
type userService struct {
	*catalog
	users Users // nil for none
}

func (s *userService) all(ctx context.Context) ([]User, error) {
	if s.users == nil {
		return nil, refusef(http.StatusNotFound, codeNotFound, "this global has no users")
	}
	return s.users.List(ctx)
}

// find returns the user of the path.
func (s *userService) find(ctx context.Context, name string) (User, error) {
	all, err := s.all(ctx)
	if err != nil {
		return User{}, err
	}
	i := slices.IndexFunc(all, func(u User) bool { return strings.EqualFold(u.Name, name) })
	if i < 0 {
		return User{}, errNotFound
	}
	return all[i], nil
}

func showUser(u User) api.User {
	return api.User{Name: u.Name, Role: string(u.Role), Rooms: append([]string{}, u.Rooms...), SecondFactor: u.SecondFactor, Invited: u.Invited, CreatedOn: u.Made}
}

func (s *userService) list(ctx context.Context, _ *request) (any, error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.User{}
	for _, u := range all {
		out = append(out, showUser(u))
	}
	return complete(out), nil
}

// create makes a user. The answer has a link for the password, which only the admin sees.
func (s *userService) create(ctx context.Context, q *request) (any, error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	var f faults
	m := f.object("", q.body, "name", "role", "rooms")
	name, _ := f.text("/name", m["name"])
	if slices.ContainsFunc(all, func(u User) bool { return strings.EqualFold(u.Name, name) }) {
		f.add("/name", "name is the name of another user already")
	}
	role, rooms := f.role(m["role"]), s.rooms(ctx, &f, m["rooms"])
	if len(f) > 0 {
		return nil, invalid(f)
	}
	path, err := s.users.Invite(ctx, name, role, rooms)
	if err != nil {
		return nil, userFault("/name", err)
	}
	u, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	out := showUser(u)
	out.SetupPath = &path
	return out, nil
}

func (s *userService) patch(ctx context.Context, q *request) (any, error) {
	u, err := s.find(ctx, q.PathValue("user"))
	if err != nil {
		return nil, err
	}
	var f faults
	m := f.object("", q.body, "role", "rooms")
	if m["role"] != nil {
		u.Role = f.role(m["role"])
	}
	if m["rooms"] != nil {
		u.Rooms = s.rooms(ctx, &f, m["rooms"])
	}
	if len(f) > 0 {
		return nil, invalid(f)
	}
	if err := s.users.Change(ctx, u.Name, u.Role, u.Rooms); err != nil {
		return nil, userFault("/role", err)
	}
	return showUser(u), nil
}

func (s *userService) delete(ctx context.Context, q *request) (any, error) {
	u, err := s.find(ctx, q.PathValue("user"))
	if err != nil {
		return nil, err
	}
	if err := s.users.Remove(ctx, u.Name); err != nil {
		return nil, userFault("", err)
	}
	return deleted(u.Name), nil
}

// link makes a link for a new password.
func (s *userService) link(ctx context.Context, q *request) (any, error) {
	u, err := s.find(ctx, q.PathValue("user"))
	if err != nil {
		return nil, err
	}
	path, err := s.users.Invite(ctx, u.Name, u.Role, u.Rooms)
	if err != nil {
		return nil, userFault("", err)
	}
	out := showUser(u)
	out.SetupPath = &path
	return out, nil
}

// userFault returns the refusal for a broken rule.
func userFault(at string, err error) error {
	rule, ok := err.(*RuleError) //nolint:errorlint // never wrapped
	if !ok {
		return err
	}
	var f faults
	f.add(at, "%s", rule.Rule)
	return invalid(f)
}

// role reads a role.
func (f *faults) role(value []byte) Role {
	role, ok := f.text("/role", value)
	if role = strings.ToLower(role); ok && !slices.Contains(roles, Role(role)) {
		f.add("/role", "role must be viewer, operator, editor or admin, got %q", short(role))
	}
	return Role(role)
}

// maxOwnRooms bounds the rooms of a principal.
const maxOwnRooms = 100

// rooms reads the only rooms of a principal, by name or ID; none for all.
func (c *catalog) rooms(ctx context.Context, f *faults, value []byte) (ids []string) {
	if len(value) == 0 {
		return nil
	}
	var names []string
	if err := json.Unmarshal(value, &names); err != nil {
		f.add("/rooms", "rooms must be a list of names or IDs, empty for all rooms")
		return nil
	}
	if len(names) > maxOwnRooms {
		f.add("/rooms", "rooms must be at most %d, got %d", maxOwnRooms, len(names))
		return nil
	}
	state, err := c.store.Read(ctx)
	if err != nil {
		f.add("/rooms", "rooms cannot be checked now: the store cannot be read")
		return nil
	}
	for i, name := range names {
		r := state.Room(name)
		if r == nil {
			r = c.find(state, name)
		}
		if r == nil {
			f.add(fmt.Sprintf("/rooms/%d", i), "no room %q", short(name))
			continue
		}
		ids = append(ids, room.PublicID(r.Known()))
	}
	return ids
}
