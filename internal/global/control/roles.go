package control

import (
	"slices"
)

// Role is the set of operations that a token permits. Each role includes those before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // sees rooms and their state
	Operator Role = "operator" // runs events
	Editor   Role = "editor"   // makes and changes rooms
	Admin    Role = "admin"    // makes tokens
)

var roles = []Role{Viewer, Operator, Editor, Admin}

// Known reports whether r is a role.
func (r Role) Known() bool { return slices.Contains(roles, r) }

// May reports whether the role includes another.
func (r Role) May(need Role) bool { return slices.Index(roles, r) >= slices.Index(roles, need) }
