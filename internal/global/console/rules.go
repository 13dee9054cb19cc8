package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// rulesView is the content of the page of a room's rules.
type rulesView struct {
	ID     string
	Rules  []ruleView
	Editor bool
	Done   string // result of a change, "" for none
	Fault  string
	Seen   string // of the whole list
	Try    tryView
	Add    *formView
}

// ruleView is a rule in its place.
type ruleView struct {
	api.Rule
	Place       int
	First, Last bool
	Tried       *api.TriedRule // nil unless it was tried
}

// tryView is the form that tries the rules, with its result.
type tryView struct {
	Form   url.Values
	Result *api.TriedRules // nil before
	Fault  string
}

// ruleDone are the results of changes in words.
var ruleDone = map[string]string{
	"added": "The rule is added. Edges apply it within seconds.", "saved": "The rule is changed.",
	"moved":   "The rule is moved.",
	"deleted": "The rule is deleted. To undo this, restore the previous revision under Changes.",
}

// tryFields are the fields of the form that tries rules.
var tryFields = []string{"method", "host", "path", "address", "user_agent", "country", "expression"}

// place reads the room of a page.
func (q *request) place(tab string) (*api.Room, *place, error) {
	var r api.Room
	err := q.get(roomsPath()+"/"+q.PathValue("id"), &r)
	return &r, &place{ID: r.Id, Name: r.Name, Tab: tab}, err
}

// rulesPath returns the path of a room's rules in the API.
func rulesPath(id string) string { return roomsPath() + "/" + id + "/rules" }

// tryRules evaluates the rules for the request in the form, if there is one.
func tryRules(q *request, room *api.Room) (tryView, error) {
	v := tryView{Form: url.Values{"host": {room.Host}, "path": {room.Path}, "method": {http.MethodGet}}}
	if !q.URL.Query().Has("host") {
		return v, nil
	}
	body := map[string]string{}
	for _, name := range tryFields {
		if value := q.FormValue(name); value != "" {
			body[name] = value
		}
		v.Form.Set(name, q.FormValue(name))
	}
	var result api.TriedRules
	err := q.call(http.MethodPost, ownPath(room.Id)+"/rules/try", body, &result)
	if err == nil {
		v.Result = &result
		return v, nil
	}
	form := &formView{}
	err = form.blame(err)
	v.Fault = form.Fault
	return v, err
}

// serveRules shows the rules of a room, and tries them.
func serveRules(q *request) error { return showRules(q, http.StatusOK, "", nil) }

// showRules shows the rules of a room with a fault, "" for none, and a form for a new one; nil for an empty form.
func showRules(q *request, status int, fault string, add *formView) error {
	room, at, err := q.place("rules")
	if err != nil {
		return err
	}
	var list []api.Rule
	if err := q.get(rulesPath(room.Id), &list); err != nil {
		return err
	}
	v := &rulesView{ID: room.Id, Editor: q.may(control.Editor), Done: ruleDone[q.FormValue("done")], Add: add, Fault: fault, Seen: seenOf(list)}
	if v.Try, err = tryRules(q, room); err != nil {
		return err
	}
	if v.Add == nil {
		v.Add = ruleForm(roomPath(room.Id)+"/rules", "Add the rule", "", &api.Rule{Enabled: true})
	}
	for i, r := range list {
		rule := ruleView{Rule: r, Place: i + 1, First: i == 0, Last: i == len(list)-1}
		if v.Try.Result != nil {
			tried := v.Try.Result.Rules
			if j := slices.IndexFunc(tried, func(t api.TriedRule) bool { return t.Id == r.Id }); j >= 0 {
				rule.Tried = &tried[j]
			}
		}
		v.Rules = append(v.Rules, rule)
	}
	return q.showIn(status, "rules", "Rules of "+room.Name, at, v)
}

// ruleForm returns the form of a rule.
func ruleForm(action, verb, cancel string, r *api.Rule) *formView {
	return &formView{Action: action, Verb: verb, Cancel: cancel, Fields: []field{
		{
			Name: "expression", Label: "Expression", Hint: "in Cloudflare's rules language", Kind: "area", Value: r.Expression,
			Required: true,
		},
		{Name: "description", Label: "Description", Value: r.Description},
		{Name: "enabled", Label: "Enabled", Kind: "check", Value: strconv.FormatBool(r.Enabled)},
	}}
}

// addRule adds a rule at the end.
func addRule(q *request) error {
	id := q.PathValue("id")
	form := ruleForm(roomPath(id)+"/rules", "Add the rule", "", &api.Rule{})
	fixed := map[string]any{"action": room.ActionBypass}
	return q.submit(form, http.MethodPost, rulesPath(id), fixed,
		func(q *request, status int, form *formView) error { return showRules(q, status, "", form) },
		roomPath(id)+"/rules?done=added")
}

// oneRuleView is the content of the page of one rule.
type oneRuleView struct {
	ID   string
	Rule api.Rule
	Form *formView
	Seen string // of the rule as it is
}

// findRule reads the rules of the room, and finds the one in the path.
func findRule(q *request) (list []api.Rule, i int, err error) {
	if err := q.get(rulesPath(q.PathValue("id")), &list); err != nil {
		return nil, 0, err
	}
	i = slices.IndexFunc(list, func(r api.Rule) bool { return r.Id == q.PathValue("rule") })
	if i < 0 {
		return nil, 0, notFoundError{}
	}
	return list, i, nil
}

// serveRule shows the form of a rule.
func serveRule(q *request) error {
	list, i, err := findRule(q)
	if err != nil {
		return err
	}
	return showRule(q, http.StatusOK, &list[i], nil)
}

func showRule(q *request, status int, r *api.Rule, form *formView) error {
	if !q.may(control.Editor) {
		return q.forbidden(control.Editor)
	}
	room, at, err := q.place("rules")
	if err != nil {
		return err
	}
	list := roomPath(room.Id) + "/rules"
	own := ruleForm(list+"/"+r.Id, "Save", list, r).editing()
	if form == nil {
		form = own
	}
	return q.showIn(status, "rule", "Rule of "+room.Name, at, &oneRuleView{room.Id, *r, form, own.Seen})
}

// changeRule saves, moves or deletes a rule, as the field "do" says.
func changeRule(q *request) error {
	if !q.may(control.Editor) {
		return q.forbidden(control.Editor)
	}
	room, _, err := q.place("rules")
	if err != nil {
		return err
	}
	rules, at, err := findRule(q)
	if err != nil {
		return err
	}
	q.expects = revisionOf(room)
	r, do, seen := &rules[at], q.FormValue("do"), q.PostFormValue("seen")
	list, path := roomPath(room.Id)+"/rules", rulesPath(room.Id)+"/"+r.Id
	form := ruleForm(list+"/"+r.Id, "Save", list, r).editing()
	switch {
	case (do == "up" || do == "down") && seen != seenOf(rules):
		return showRules(q, http.StatusConflict, changedMeanwhile, nil)
	case do == "up" || do == "down":
		index := at // counted from 1
		if do == "down" {
			index = at + 2
		}
		position := map[string]any{"position": map[string]int{"index": index}}
		return q.changeAnd(http.MethodPatch, path, position, list+"?done=moved")
	case do == "delete" && seen != form.Seen:
		form.Fault = changedMeanwhile
		return showRule(q, http.StatusConflict, r, form)
	case do == "delete":
		return q.changeAnd(http.MethodDelete, path, nil, list+"?done=deleted")
	}
	return q.submit(form, http.MethodPatch, path, nil,
		func(q *request, status int, form *formView) error { return showRule(q, status, r, form) }, list+"?done=saved")
}
