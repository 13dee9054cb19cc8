package console

import (
	"net/http"
	"net/url"
	"strings"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// accessView is the content of the page of tokens.
type accessView struct {
	Tokens    []tokenView
	Sessions  []sessionView
	Made      *api.Token // just created, with its value; nil for none
	Unread    string     // why the lists are missing, "" if they are there
	Done      string
	TokenForm *formView
}

// tokenView is a token.
type tokenView struct {
	api.Token
	RoomNames     string
	Used, Expires string
	Own           bool // the operator's own
}

// sessionView is a session of a person.
type sessionView struct {
	control.Session
	Began, Used string
}

const (
	tokensPath = "/vestibule/tokens"
	accessPath = "/console/access"
)

// roleChoices are the roles in words.
var roleChoices = []choice{
	{string(control.Viewer), "viewer: looks at rooms"},
	{string(control.Operator), "operator: pauses, messages, limits, releases"},
	{string(control.Editor), "editor: changes rooms, events and rules"},
	{string(control.Admin), "admin: also tokens and the audit log"},
}

// accessDone are the results of changes in words.
var accessDone = map[string]string{
	"revoked": "The token is revoked. It is refused from now on.",
	"ended":   "The session is ended. Its pages stop within seconds. Who may log in is decided by the login provider.",
}

// serveAccess shows the tokens.
func serveAccess(q *request) error {
	return showAccess(q, http.StatusOK, &accessView{Done: accessDone[q.FormValue("done")]})
}

func showAccess(q *request, status int, v *accessView) error {
	if err := readAccess(q, v); err != nil {
		if v.Made == nil {
			return err
		}
		v.Unread = lostLists // the value is shown only now
	}
	if v.TokenForm == nil {
		v.TokenForm = tokenForm()
	}
	return q.show(status, "access", &frame{Title: "Access", Current: "access", Main: v})
}

// lostLists tells that a page has only what was made.
const lostLists = "The lists cannot be read now. Open the page again for them, once you have copied what is shown here."

// readAccess reads the tokens and sessions.
func readAccess(q *request, v *accessView) error {
	names, err := roomNames(q)
	if err != nil {
		return err
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
	sessions, err := q.c.API.Sessions(q.Context(), q.who)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		v.Sessions = append(v.Sessions, sessionView{s, "logged in " + ago(q.now, s.Made), "seen " + ago(q.now, s.Seen)})
	}
	return nil
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

// roomsField is the field of the only rooms of a token.
var roomsField = field{
	Name: "rooms", Label: "Rooms", Hint: "names, with commas between them; empty for all", Kind: "list",
}

func tokenForm() *formView {
	return &formView{Action: accessPath + "/tokens", Prefix: "token", Verb: "Create the token", Fields: []field{
		{Name: "name", Label: "Name", Hint: "of the program that uses it", Required: true, Max: 64},
		{Name: "role", Label: "Role", Kind: "choice", Value: string(control.Viewer), Choices: roleChoices},
		roomsField,
		{Name: "expires_on", Label: "Expires (UTC)", Hint: "empty: in a year", Kind: "time"},
	}}
}

// addToken creates a token, and shows its value once.
func addToken(q *request) error {
	v := &accessView{TokenForm: tokenForm()}
	var made api.Token
	if err := q.send(v.TokenForm, http.MethodPost, tokensPath, nil, &made); err != nil {
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
	path := tokensPath + "/" + url.PathEscape(q.PathValue("token"))
	return q.changeAnd(http.MethodDelete, path, nil, accessPath+"?done=revoked")
}

// endSession ends a session of a person.
func endSession(q *request) error {
	err := q.c.API.EndSession(q.Context(), q.who, q.RemoteAddr, q.PathValue("session"), strings.TrimSpace(q.PostFormValue("reason")))
	if err != nil {
		return err
	}
	return q.to(accessPath + "?done=ended")
}
