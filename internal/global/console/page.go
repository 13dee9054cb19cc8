package console

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/page"
)

// pageView is the content of the page about a room's waiting page.
type pageView struct {
	ID                string
	Operator, Editor  bool
	Done              string
	Current           string // HTML, "" for the built-in page
	Size              string
	Preview           string // address of a preview, "" for none
	Candidate         string // HTML that is previewed and not published, "" for none
	Builtin           bool   // the candidate is the built-in page
	Fault             string
	Seen              string // of the current page
	Theirs            bool   // the page was changed by somebody else: both are shown
	States, Languages []string
	Consequence       string
}

var pageDone = map[string]string{
	"published": "The page is published. To undo this, restore the previous revision under Changes.",
}

// servePage shows the waiting page of a room.
func servePage(q *request) error { return showPage(q, http.StatusOK, &pageView{}) }

func showPage(q *request, status int, v *pageView) error {
	r, at, err := q.place("page")
	if err != nil {
		return err
	}
	v.ID, v.Operator, v.Editor, v.Done = r.Id, q.may(control.Operator), q.may(control.Editor),
		pageDone[q.URL.Query().Get("done")]
	v.Seen = seenOf(r.CustomPageHtml)
	v.Current, v.Size, v.Languages = r.CustomPageHtml, plural(len(r.CustomPageHtml), "byte", "bytes"), room.Languages
	for _, s := range page.Samples {
		v.States = append(v.States, s.Name)
	}
	if v.Preview != "" && (v.Candidate != "" || v.Builtin) {
		waiting := "All waiting visitors (their number is unknown)"
		status, err := readStatus(q.call, r.Id)
		if err != nil {
			return err
		}
		if status != nil {
			waiting = people(status.EstimatedQueuedUsers) + " who wait"
		}
		v.Consequence = fmt.Sprintf("New visitors get this page. %s get it when their page is loaded again.", waiting)
	}
	return q.showIn(status, "page", "Waiting page of "+r.Name, at, v)
}

// sentPage returns the HTML of a form: of the file, else of the text.
func sentPage(q *request) (string, error) {
	file, _, err := q.FormFile("file")
	if errors.Is(err, http.ErrMissingFile) || errors.Is(err, http.ErrNotMultipart) {
		return strings.ReplaceAll(q.PostFormValue("html"), "\r\n", "\n"), nil
	}
	if err != nil {
		return "", faultf("the file cannot be read: %v", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxForm))
	if err != nil {
		return "", faultf("the file cannot be read: %v", err)
	}
	if len(data) == 0 {
		return strings.ReplaceAll(q.PostFormValue("html"), "\r\n", "\n"), nil
	}
	return string(data), nil
}

// changePage previews the current page or another one, or publishes it, as the field "do" says.
func changePage(q *request) error {
	html, err := sentPage(q)
	if err != nil {
		return err
	}
	r, _, err := q.place("page")
	if err != nil {
		return err
	}
	id, do, needs := r.Id, q.PostFormValue("do"), control.Operator
	if do == "publish" {
		needs = control.Editor
	}
	if !q.may(needs) {
		return q.forbidden(needs)
	}
	refused := func(err error) error {
		if control.Status(err) == http.StatusBadRequest {
			return showPage(q, http.StatusUnprocessableEntity, &pageView{
				Fault: strings.Join(failureOf(err).Notes, "; "), Candidate: html,
			})
		}
		return err
	}
	if do != "current" && q.PostFormValue("seen") != seenOf(r.CustomPageHtml) {
		return showPage(q, http.StatusConflict, &pageView{
			Fault:     changedMeanwhile + " Your page is kept below, and the one that visitors get now stands under it.",
			Candidate: html, Theirs: true,
		})
	}
	if do == "publish" {
		q.expects = revisionOf(r)
		if err := q.change(http.MethodPatch, roomsPath()+"/"+id, map[string]string{"custom_page_html": html}, nil); err != nil {
			return refused(err)
		}
		return q.to(roomPath(id) + "/page?done=published")
	}
	v := &pageView{Candidate: html, Builtin: do == "builtin"}
	switch do {
	case "current":
		v.Candidate, html = "", r.CustomPageHtml
	case "builtin":
		v.Candidate, html = "", ""
	default:
		if strings.TrimSpace(html) == "" {
			return showPage(q, http.StatusUnprocessableEntity, &pageView{Fault: "Choose a file or paste the page."})
		}
	}
	var made struct {
		PreviewURL string `json:"preview_url"`
	}
	err = q.call(http.MethodPost, roomsPath()+"/preview", map[string]string{"custom_html": html}, &made)
	if err != nil {
		return refused(err)
	}
	v.Preview = made.PreviewURL
	return showPage(q, http.StatusOK, v)
}
