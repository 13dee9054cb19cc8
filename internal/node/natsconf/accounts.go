package natsconf

import (
	"slices"
	"strings"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// user is one user of a place.
type user struct {
	role natsbus.Role
	name string // "" where there is one of the role
	leaf string // data centre, of a leaf at the hub
}

// id is what the certificate of a user bears, and its server's configuration.
func (u user) id(place string) string {
	switch {
	case u.leaf != "":
		return string(u.role) + "." + u.leaf
	case u.name == "":
		return string(u.role) + "." + place
	}
	return u.name + "." + string(u.role) + "." + place
}

// allowed is what the user may say and hear.
func (u user) allowed(place string) natsbus.Allowed {
	if u.leaf != "" {
		return natsbus.Allow(u.role, u.leaf, "")
	}
	name := u.name
	if name == "" {
		name = string(u.role)
	}
	return natsbus.Allow(u.role, place, name)
}

// connection is the kind of connection that the user may make.
func (u user) connection() string {
	if u.leaf != "" {
		return "LEAFNODE"
	}
	return "STANDARD"
}

// mainAccount is that of nodes, and of their buckets.
const mainAccount = "VESTIBULE"

// account is one account of a place.
type account struct {
	name    string
	users   []user
	imports []imported // from the main account; all that is there but its users' own
}

type imported struct{ kind, subject, as string }

// accounts lists the accounts of a place. At the hub, the servers of each data centre
// and the operator have one of their own. The subject on which an answer arrives is
// chosen by who asks, and no list of permissions bounds it: in the account of the
// buckets, whoever may read a document could have it written into another one, or
// sent to another data centre. In an account of its own it reaches itself.
func (p *Plan) accounts(place string) []account {
	first := account{name: mainAccount}
	var guests []account
	for _, u := range p.users(place) {
		switch {
		case u.leaf != "":
			guests = append(guests, guest("DC-"+u.leaf, u, place))
		case u.role == natsbus.RoleOperator && place == wire.Root:
			guests = append(guests, guest("OPERATOR", u, place))
		default:
			first.users = append(first.users, u)
		}
	}
	return append([]account{first}, guests...)
}

// guest returns the account of one user, with what it may say and hear in the main one.
func guest(name string, u user, place string) account {
	a := account{name: name, users: []user{u}}
	allowed := u.allowed(place)
	for _, s := range allowed.Publish {
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
		if !strings.HasPrefix(s, "_INBOX.") {
			a.imports = append(a.imports, imported{"stream", s, s})
		}
	}
	return a
}

type exported struct {
	kind, subject string
	to            []string
}

// exports lists what the main account lets the others have.
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
		for _, dc := range p.DataCenters {
			out = append(out, user{role: natsbus.RoleLeaf, leaf: dc})
		}
		return out
	}
	add(natsbus.RoleRegional, p.Regionals)
	add(natsbus.RoleEdge, p.Edges)
	return out
}
