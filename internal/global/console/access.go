package console

import (
	"net/http"
	"net/url"
	"strings"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// accessView is the content of the page of users and tokens.
type accessView struct {
	Users     []userView
	HasUsers  bool // this global has users
	Tokens    []tokenView
	Roles     []choice
	Link      string     // by which a user sets a password, "" for none
	LinkOf    string     // its user
	Made      *api.Token // just created, with its value; nil for none
	Done      string
	UserForm  *formView
	TokenForm *formView
}

// userView is a user.
type userView struct {
	api.User
	RoomNames string // of the only rooms, "" for all
	Own       bool   // the operator
}

// tokenView is a token.
type tokenView struct {
	api.Token
	RoomNames     string
	Used, Expires string
	Own           bool // the operator's own
}

const (
	tokensPath = "/vestibule/tokens"
	usersPath  = "/vestibule/users"
	accessPath = "/console/access"
)

// roleChoices are the roles in words.
var roleChoices = []choice{
	{string(control.Viewer), "viewer: looks at rooms"},
	{string(control.Operator), "operator: pauses, messages, limits, releases"},
	{string(control.Editor), "editor: changes rooms, events and rules"},
	{string(control.Admin), "admin: also users, tokens and the audit log"},
}

// accessDone are the results of changes in words.
var accessDone = map[string]string{
	"revoked": "The token is revoked. It is refused from now on.", "removed": "The user is removed, and logged out everywhere.",
	"saved": "The user is changed. The new role counts from the next login.",
}

// serveAccess shows the users and the tokens.
func serveAccess(q *request) error {
	return showAccess(q, http.StatusOK, &accessView{Done: accessDone[q.FormValue("done")]})
}

func showAccess(q *request, status int, v *accessView) error {
	names, err := roomNames(q)
	if err != nil {
		return err
	}
	v.Roles = roleChoices
	var users []api.User
	err = q.get(usersPath, &users)
	if v.HasUsers = err == nil; !v.HasUsers && control.Status(err) != http.StatusNotFound {
		return err
	}
	for _, u := range users {
		v.Users = append(v.Users, userView{u, namesOf(names, u.Rooms), u.Name == q.who.Name})
	}
	var tokens []api.Token
	if err := q.get(tokensPath, &tokens); err != nil {
		return err
	}
	for _, t := range tokens {
		row := tokenView{
			Token: t, RoomNames: namesOf(names, t.Rooms), Used: "never used", Expires: "does not expire", Own: t.Id == q.who.ID,
		}
		if t.LastUsedOn != nil {
			row.Used = "used " + ago(q.now, *t.LastUsedOn)
		}
		if t.ExpiresOn != nil {
			row.Expires = "expires " + clock(q.now, *t.ExpiresOn)
			if !t.ExpiresOn.After(q.now) {
				row.Expires = "expired"
			}
		}
		v.Tokens = append(v.Tokens, row)
	}
	if v.UserForm == nil {
		v.UserForm = userForm()
	}
	if v.TokenForm == nil {
		v.TokenForm = tokenForm()
	}
	return q.show(status, "access", &frame{Title: "Access", Current: "access", Main: v})
}

// roomNames returns the names of the rooms by their IDs.
func roomNames(q *request) (map[string]string, error) {
	l, err := readList(q.call)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, r := range l.rooms {
		names[r.id] = r.name
	}
	return names, nil
}

// namesOf returns the names of rooms; the ID of a room that is gone.
func namesOf(names map[string]string, ids []string) string {
	var out []string
	for _, id := range ids {
		if name, ok := names[id]; ok {
			id = name
		}
		out = append(out, id)
	}
	return strings.Join(out, ", ")
}

// roomsField is the field of the only rooms of a user or a token.
var roomsField = field{Name: "rooms", Label: "Rooms", Hint: "names, with commas between them; empty for all", Kind: "list"}

func userForm() *formView {
	return &formView{Action: accessPath + "/users", Prefix: "user", Verb: "Invite", Fields: []field{
		{Name: "name", Label: "Name", Hint: "to log in with", Required: true, Max: 64},
		{Name: "role", Label: "Role", Kind: "choice", Value: string(control.Viewer), Choices: roleChoices},
		roomsField,
	}}
}

func tokenForm() *formView {
	return &formView{Action: accessPath + "/tokens", Prefix: "token", Verb: "Create the token", Fields: []field{
		{Name: "name", Label: "Name", Hint: "of the program that uses it", Required: true, Max: 64},
		{Name: "role", Label: "Role", Kind: "choice", Value: string(control.Viewer), Choices: roleChoices},
		roomsField,
		{Name: "expires_on", Label: "Expires (UTC)", Hint: "empty: in a year", Kind: "time"},
	}}
}

// link returns the address of a path for people.
func (q *request) link(path string) string {
	if q.TLS != nil {
		return "https://" + q.Host + path
	}
	return "http://" + q.Host + path
}

// addUser invites a user, and shows the link for the password once.
func addUser(q *request) error {
	v := &accessView{UserForm: userForm()}
	var made api.User
	if err := q.sendFor(v.UserForm, http.MethodPost, usersPath, nil, &made); err != nil {
		return err
	}
	if v.UserForm.faulty() {
		return showAccess(q, http.StatusUnprocessableEntity, v)
	}
	v.UserForm = nil
	return showLink(q, v, &made)
}

func showLink(q *request, v *accessView, u *api.User) error {
	if v.LinkOf = u.Name; u.SetupPath != nil {
		v.Link = q.link(*u.SetupPath)
	}
	return showAccess(q, http.StatusOK, v)
}

// changeUser changes or removes a user, or makes a new link, as the field "do" says.
func changeUser(q *request) error {
	path := usersPath + "/" + url.PathEscape(q.PathValue("user"))
	switch q.FormValue("do") {
	case "remove":
		if err := q.change(http.MethodDelete, path, nil, nil); err != nil {
			return err
		}
		return q.to(accessPath + "?done=removed")
	case "link":
		var u api.User
		if err := q.change(http.MethodPost, path+"/link", nil, &u); err != nil {
			return err
		}
		return showLink(q, &accessView{}, &u)
	}
	rooms := field{Kind: "list", Value: q.FormValue("rooms")}
	list, _ := rooms.read()
	if err := q.change(http.MethodPatch, path, map[string]any{"role": q.FormValue("role"), "rooms": list}, nil); err != nil {
		return err
	}
	return q.to(accessPath + "?done=saved")
}

// addToken creates a token, and shows its value once.
func addToken(q *request) error {
	v := &accessView{TokenForm: tokenForm()}
	var made api.Token
	if err := q.sendFor(v.TokenForm, http.MethodPost, tokensPath, nil, &made); err != nil {
		return err
	}
	if v.TokenForm.faulty() {
		return showAccess(q, http.StatusUnprocessableEntity, v)
	}
	v.Made, v.TokenForm = &made, nil
	return showAccess(q, http.StatusOK, v)
}

// revokeToken revokes a token.
func revokeToken(q *request) error {
	if err := q.change(http.MethodDelete, tokensPath+"/"+url.PathEscape(q.PathValue("token")), nil, nil); err != nil {
		return err
	}
	return q.to(accessPath + "?done=revoked")
}
