package console

import (
	"net/http"
	"strconv"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// changesView is the content of the page of a room's revisions.
type changesView struct {
	ID      string
	Done    string
	Changes []changeView
	Later   string // address of the next page, "" for none
}

// changeView is a revision with its changes.
type changeView struct {
	Revision         int64
	At               time.Time
	When             string
	Who, Role, From  string
	What             string
	Differences      []difference
	Current, Deleted bool
	Late, Restorable bool
}

// changesPerPage is the number of revisions on a page.
const changesPerPage = 30

// operations names the operations on rooms.
var operations = map[string]string{
	"waiting-room-create-waiting-room": "created the room", "waiting-room-update-waiting-room": "replaced the settings",
	"waiting-room-patch-waiting-room": "changed the settings", "waiting-room-delete-waiting-room": "deleted the room",
	"waiting-room-create-event": "created an event", "waiting-room-update-event": "replaced an event",
	"waiting-room-patch-event":  "changed an event",
	"waiting-room-delete-event": "deleted an event", "waiting-room-create-waiting-room-rule": "added a rule",
	"waiting-room-replace-waiting-room-rules": "replaced the rules",
	"waiting-room-patch-waiting-room-rule":    "changed a rule",
	"waiting-room-delete-waiting-room-rule":   "deleted a rule", "restore-revision": "restored a revision",
	"apply-rooms": "applied a rooms file",
	"put-host":    "set the site of a host", "delete-host": "deleted the entry of a host",
}

// operationWords returns an operation in words.
func operationWords(id string) string {
	if words, ok := operations[id]; ok {
		return words
	}
	return id
}

// revisionsPath returns the path of a room's revisions in the API.
func revisionsPath(id string) string { return ownPath(id) + "/revisions" }

// serveChanges shows the revisions of a room.
func serveChanges(q *request) error {
	id, page := q.PathValue("id"), q.pageOf()
	var list []api.RoomRevision
	// One more than is shown: a revision shows the differences from the one before it.
	if err := q.get(revisionsPath(id)+"?per_page=1000", &list); err != nil {
		return err
	}
	v := &changesView{ID: id}
	if q.FormValue("done") == "restored" {
		v.Done = "The revision is restored, as a new one. To undo this, restore the one before it."
	}
	from := min(len(list), (page-1)*changesPerPage)
	to := min(len(list), from+changesPerPage)
	for i := from; i < to; i++ {
		v.Changes = append(v.Changes, viewChange(q.now, list, i))
	}
	if to < len(list) {
		v.Later = roomPath(id) + "/changes?page=" + strconv.Itoa(page+1)
	}
	name := id
	if len(list) > 0 {
		name = list[0].Name
	}
	return q.showIn(http.StatusOK, "changes", "Changes of "+name, &place{ID: id, Name: name, Tab: "changes"}, v)
}

// viewChange renders a revision of a list, the newest first.
func viewChange(now time.Time, list []api.RoomRevision, i int) changeView {
	r := &list[i]
	v := changeView{
		Revision: r.Revision, At: r.At, When: ago(now, r.At), Who: r.By.Name, Role: r.By.Role, From: r.By.From,
		What:    operationWords(r.By.Operation),
		Current: i == 0, Deleted: r.Room == nil, Late: r.Late, Restorable: i > 0 && r.Room != nil,
	}
	if i+1 < len(list) && r.Room != nil && list[i+1].Room != nil {
		v.Differences = differences(*list[i+1].Room, *r.Room)
	}
	return v
}

// restoreView is the content of the page that confirms a restore.
type restoreView struct {
	ID          string
	Change      changeView
	Differences []difference // from the current settings
	Fault       string
	Seen        string // of the current settings
}

// findRevision reads the revisions of a room, and finds the one in the path.
func findRevision(q *request) (list []api.RoomRevision, i int, err error) {
	if err := q.get(revisionsPath(q.PathValue("id"))+"?per_page=1000", &list); err != nil {
		return nil, 0, err
	}
	for i := range list {
		if strconv.FormatInt(list[i].Revision, 10) == q.PathValue("revision") && list[i].Room != nil {
			return list, i, nil
		}
	}
	return nil, 0, notFoundError{}
}

// serveRestore shows the changes that restoring a revision would make.
func serveRestore(q *request) error {
	list, i, err := findRevision(q)
	if err != nil {
		return err
	}
	return showRestore(q, http.StatusOK, list, i, "")
}

func showRestore(q *request, status int, list []api.RoomRevision, i int, fault string) error {
	id := q.PathValue("id")
	v := &restoreView{
		ID: id, Change: viewChange(q.now, list, i), Fault: fault, Seen: seenOf(list[0].Revision),
	}
	var current any
	if list[0].Room != nil {
		current = *list[0].Room
	}
	v.Differences = differences(current, *list[i].Room)
	at := &place{ID: id, Name: list[i].Name, Tab: "changes"}
	return q.showIn(status, "restore", "Restore a revision of "+at.Name, at, v)
}

// restoreRevision restores a revision.
func restoreRevision(q *request) error {
	id := q.PathValue("id")
	if !q.may(control.Editor) {
		return q.forbidden(control.Editor)
	}
	r, _, err := q.place("changes")
	if err == nil {
		q.expects = revisionOf(r)
	} else if control.Status(err) != http.StatusNotFound { // a deleted room comes back
		return err
	}
	list, i, err := findRevision(q)
	if err != nil {
		return err
	}
	if q.PostFormValue("seen") != seenOf(list[0].Revision) {
		return showRestore(q, http.StatusConflict, list, i, changedMeanwhile+" Look at the differences again.")
	}
	path := revisionsPath(id) + "/" + q.PathValue("revision") + "/restore"
	return q.changeAnd(http.MethodPost, path, nil, roomPath(id)+"/changes?done=restored")
}
