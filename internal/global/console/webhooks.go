package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/notices"
)

// webhooksView is the content of the page of webhooks.
type webhooksView struct {
	Webhooks []webhookView
	Made     *api.Webhook     // just created, with its secret; nil for none
	Tested   *api.WebhookTest // result of a test, nil for none
	Done     string
	Fault    string
	Unread   string // why the list is missing, "" if it is there
	Form     *formView
}

// webhookView is a webhook. The path of its URL may be a secret.
type webhookView struct {
	api.Webhook
	Host, KindNames, RoomNames string
	Seen                       string
}

const (
	hooksPath = "/vestibule/webhooks"
	hooksPage = "/console/webhooks"
)

// hookDone are the results of changes in words.
var hookDone = map[string]string{
	"on":      "The webhook is enabled.",
	"off":     "The webhook is disabled. Notices that it has not got yet are kept for a while.",
	"deleted": "The webhook is deleted, with the notices that it has not got yet.",
}

// serveWebhooks shows the webhooks.
func serveWebhooks(q *request) error {
	return showWebhooks(q, http.StatusOK, &webhooksView{Done: hookDone[q.FormValue("done")]})
}

func showWebhooks(q *request, status int, v *webhooksView) error {
	if err := readWebhooks(q, v); err != nil {
		if v.Made == nil {
			return err
		}
		v.Unread = lostLists // the secret is shown only now
	}
	if v.Form == nil {
		v.Form = hookForm()
	}
	return q.show(status, "webhooks", &frame{Title: "Notices", Current: "webhooks", Main: v})
}

// readWebhooks reads the webhooks.
func readWebhooks(q *request, v *webhooksView) error {
	names, err := roomNames(q)
	if err != nil {
		return err
	}
	var list []api.Webhook
	if err := q.get(hooksPath, &list); err != nil {
		return err
	}
	for _, w := range list {
		row := webhookView{Webhook: w, RoomNames: namesOf(names, w.Rooms), KindNames: strings.Join(w.Kinds, ", "), Seen: seenOf(w)}
		if u, err := url.Parse(w.Url); err == nil {
			row.Host = u.Host
		}
		v.Webhooks = append(v.Webhooks, row)
	}
	return nil
}

func hookForm() *formView {
	var kinds []choice
	for _, k := range notices.Kinds {
		kinds = append(kinds, choice{string(k), string(k)})
	}
	return &formView{Action: hooksPage, Verb: "Create the webhook", Fields: []field{
		{Name: "name", Label: "Name", Required: true, Max: 64},
		{Name: "url", Label: "URL", Hint: "notices are posted to it, signed", Required: true, Max: 500},
		{Name: "kinds", Label: "Kinds of notices", Hint: "none chosen: all", Kind: "list", Choices: kinds},
		roomsField,
	}}
}

// addWebhook creates a webhook, and shows its secret once.
func addWebhook(q *request) error {
	v := &webhooksView{Form: hookForm()}
	var made api.Webhook
	if err := q.send(v.Form, http.MethodPost, hooksPath, nil, &made); err != nil {
		return err
	}
	if v.Form.faulty() {
		return showWebhooks(q, http.StatusUnprocessableEntity, v)
	}
	v.Made, v.Form = &made, nil
	return showWebhooks(q, http.StatusOK, v)
}

// changeWebhook tests, enables, disables or deletes a webhook, as the field "do" says.
func changeWebhook(q *request) error {
	id, do := q.PathValue("webhook"), q.FormValue("do")
	path := hooksPath + "/" + url.PathEscape(id)
	var list []api.Webhook
	if err := q.get(hooksPath, &list); err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(w api.Webhook) bool { return w.Id == id })
	if i < 0 {
		return notFoundError{}
	}
	if q.PostFormValue("seen") != seenOf(list[i]) {
		return showWebhooks(q, http.StatusConflict, &webhooksView{
			Fault: changedMeanwhile + " This is webhook " + list[i].Name + " now.",
		})
	}
	switch do {
	case "test":
		var tested api.WebhookTest
		if err := q.change(http.MethodPost, path+"/test", nil, &tested); err != nil {
			return err
		}
		return showWebhooks(q, http.StatusOK, &webhooksView{Tested: &tested})
	case "on", "off":
		return q.changeAnd(http.MethodPatch, path, map[string]any{"enabled": do == "on"}, hooksPage+"?done="+do)
	case "delete":
		return q.changeAnd(http.MethodDelete, path, nil, hooksPage+"?done=deleted")
	}
	return faultf("The form does not say what to do.")
}
