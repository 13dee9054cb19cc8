package natsconf

import (
	"cmp"
	"slices"
	"strings"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// user is one user of a place.
type user struct {
	role natsbus.Role
	name string // "" for the only user of the role
	leaf string // data centre of a leaf at the hub
}

// id is the name in the user's certificate and in the server's configuration.
func (u user) id(place string) string {
	switch {
	case u.leaf != "":
		return string(u.role) + "." + u.leaf
	case u.name == "":
		return string(u.role) + "." + place
	}
	return u.name + "." + string(u.role) + "." + place
}

// file is the name of the user's files without their endings.
func (u user) file() string { return cmp.Or(u.name, string(u.role)) }

// allowed returns the user's permissions.
func (u user) allowed(place string) natsbus.Allowed {
	if u.leaf != "" {
		return natsbus.Allow(u.role, u.leaf, "")
	}
	return natsbus.Allow(u.role, place, u.file())
}

// connection is the allowed type of connection.
func (u user) connection() string {
	if u.leaf != "" {
		return "LEAFNODE"
	}
	return "STANDARD"
}

// mainAccount is the account of nodes and their buckets.
const mainAccount = "VESTIBULE"

// account is one account of a place.
type account struct {
	name    string
	users   []user
	imports []imported // from the main account: everything but its users' own subjects
}

type imported struct{ kind, subject, as string }

// accounts lists the accounts of a place. At the hub, the servers of each data centre, the operator and the notifiers
// have separate accounts. The client chooses the reply subject, which permissions do not restrict: in the account of
// the buckets, a user that may read a document could have it written into another one, or sent to another data centre.
// In a separate account the reply stays there.
func (p *Plan) accounts(place string) []account {
	first := account{name: mainAccount}
	var guests []account
	for _, u := range p.users(place) {
		switch {
		case u.leaf != "":
			guests = append(guests, guest("DC-"+u.leaf, u, place))
		case u.role == natsbus.RoleOperator && place == wire.Root:
			guests = append(guests, guest("OPERATOR", u, place))
		case u.role == natsbus.RoleNotifier:
			if i := slices.IndexFunc(guests, func(a account) bool { return a.name == notifierAccount }); i >= 0 {
				guests[i].users = append(guests[i].users, u)
				continue
			}
			guests = append(guests, guest(notifierAccount, u, place))
		default:
			first.users = append(first.users, u)
		}
	}
	return append([]account{first}, guests...)
}

// notifierAccount is the account of all notifiers: their messages to each other stay in it.
const notifierAccount = "NOTIFIERS"

// guest returns the account of one user, with its permissions in the main account.
func guest(name string, u user, place string) account {
	a := account{name: name, users: []user{u}}
	allowed := u.allowed(place)
	for _, s := range allowed.Publish {
		if s == wire.NotifierSubject {
			continue
		}
		i := imported{"service", s, s}
		if rest, ok := strings.CutPrefix(s, "$JS."+natsbus.DocumentsDomain+".API."); ok {
			i.subject = rest
			if !strings.HasPrefix(rest, "$KV.") {
				i.subject = "$JS.API." + rest
			}
		}
		a.imports = append(a.imports, i)
	}
	for _, s := range allowed.Subscribe {
		if !strings.HasPrefix(s, "_INBOX.") && s != wire.NotifierSubject {
			a.imports = append(a.imports, imported{"stream", s, s})
		}
	}
	return a
}

type exported struct {
	kind, subject string
	to            []string
}

// exports lists the exports of the main account to the others.
func exports(accounts []account) (out []exported) {
	for _, a := range accounts {
		for _, i := range a.imports {
			at := slices.IndexFunc(out, func(e exported) bool { return e.kind == i.kind && e.subject == i.subject })
			if at < 0 {
				at, out = len(out), append(out, exported{i.kind, i.subject, nil})
			}
			out[at].to = append(out[at].to, a.name)
		}
	}
	return out
}

// users lists the users of a place.
func (p *Plan) users(place string) []user {
	out := []user{{role: natsbus.RoleOperator}, {role: natsbus.RoleProvision}}
	add := func(role natsbus.Role, names []string) {
		for _, name := range names {
			out = append(out, user{role: role, name: name})
		}
	}
	if place == wire.Root {
		add(natsbus.RoleGlobal, p.Globals)
		add(natsbus.RoleNotifier, p.Notifiers)
		for _, dc := range p.DataCenters {
			out = append(out, user{role: natsbus.RoleLeaf, leaf: dc})
		}
		return out
	}
	add(natsbus.RoleRegional, p.Regionals)
	add(natsbus.RoleEdge, p.Edges)
	return out
}
