package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
)

// sentence says what an entry did, without its author, such as "paused room shop". changes are those of the entry.
func sentence(e *audit.Entry, changes []api.AppliedChange) string {
	if e.Failed != "" {
		return fmt.Sprintf("did not do that: the change of entry %s was not made", e.Failed)
	}
	name := ""
	if len(changes) > 0 {
		name = changes[0].Name
	}
	switch id, _ := strings.CutPrefix(e.Target, tokenKeys); {
	case strings.HasPrefix(e.Target, controlsTarget) && e.By.Operation == letInOperation:
		return letInSentence(e, name)
	case strings.HasPrefix(e.Target, controlsTarget):
		return controlSentence(e, name)
	case e.Target == loginTarget:
		return loginSentence(e)
	case strings.HasPrefix(e.Target, tokenTarget):
		return made(e, "token", cmp.Or(named(e), id))
	case strings.HasPrefix(e.Target, sessionTarget):
		return "ended the session of " + named(e)
	case strings.HasPrefix(e.Target, webhookTarget):
		return webhookSentence(e, cmp.Or(named(e), name))
	case strings.HasPrefix(e.Target, centreTarget):
		return centreSentence(e, name)
	case e.Target == "fleet":
		return "began the fleet: nobody was ever admitted in it"
	case e.Target == keysTarget && flat(e.After)["revoked"] == true:
		return "revoked all tickets: new keys are in use"
	case e.Target == keysTarget:
		return "rotated the keys of tickets"
	case e.Target == "zone":
		return "changed the settings of the zone"
	case e.Target != "":
		return "changed " + e.Target
	}
	return roomSentence(e, changes)
}

// made says that a thing was created, changed or deleted.
func made(e *audit.Entry, kind, name string) string {
	verb := "changed"
	switch {
	case e.Before == nil && e.After != nil:
		verb = "created"
	case e.Before != nil && e.After == nil && kind == "token":
		verb = "revoked"
	case e.Before != nil && e.After == nil:
		verb = "deleted"
	}
	return verb + " " + kind + " " + name
}

// fieldIn returns a field of one of two JSON objects, the later if it has it.
func fieldIn(e *audit.Entry, key string) string {
	for _, data := range []json.RawMessage{e.After, e.Before} {
		if text, ok := flat(data)[key].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

func named(e *audit.Entry) string { return fieldIn(e, "name") }

func webhookSentence(e *audit.Entry, name string) string {
	if before, after := flat(e.Before), flat(e.After); before != nil && after != nil {
		switch {
		case before["off"] == nil && after["off"] != nil:
			return fmt.Sprintf("turned webhook %s off: %v", name, after["off"])
		case before["off"] != nil && after["off"] == nil:
			return "turned webhook " + name + " on"
		case before["keys"] != after["keys"]:
			return "gave webhook " + name + " a new secret"
		}
	}
	return made(e, "webhook", name)
}

func centreSentence(e *audit.Entry, name string) string {
	if lost := fieldIn(e, "forget"); lost != "" {
		return fmt.Sprintf("declared lost: %s of data centre %s", lost, name)
	}
	switch state, before := fieldIn(e, "state"), e.Before != nil; {
	case state == "active" && !before:
		return "added data centre " + name
	case state == "active":
		return "made data centre " + name + " active"
	case state == "draining":
		return "began to drain data centre " + name
	default:
		return "removed data centre " + name
	}
}

func loginSentence(e *audit.Entry) string {
	what := "was refused"
	if id := fieldIn(e, "token"); id != "" {
		what += ", with token " + id
	}
	return what + ": " + fieldIn(e, "refused")
}

// letInOperation is the operation of entries about the end of a release.
const letInOperation = "release"

// letIn is what such an entry has.
type letIn struct {
	People int `json:"let_in"`
}

// LetIn returns the audit entry that the visitors of a release have entered a room. node is the leading global.
func LetIn(now time.Time, id, name, node string, k *room.Release) (audit.Entry, error) {
	by := audit.By{
		Name: "release of " + cmp.Or(k.By, "somebody"), From: node, Operation: letInOperation, Reason: k.Reason,
	}
	return audit.Of(now, by, controlsTarget+id+" "+name, nil, letIn{k.N})
}

func letInSentence(e *audit.Entry, name string) string {
	var done letIn
	if json.Unmarshal(e.After, &done) == nil && done.People == 1 {
		return "let in the next visitor of paused room " + name
	}
	return fmt.Sprintf("let in the next %d visitors of paused room %s", done.People, name)
}

// controlSentence tells each control that differs.
func controlSentence(e *audit.Entry, name string) string {
	var before, after room.Control
	if e.Before != nil && json.Unmarshal(e.Before, &before) != nil || e.After != nil &&
		json.Unmarshal(e.After, &after) != nil {
		return "changed the controls of room " + name
	}
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	until := func(m *room.Mark) string {
		if m.Until == 0 {
			return ""
		}
		return " until " + time.UnixMilli(m.Until).UTC().Format("2 Jan 2006, 15:04:05 UTC")
	}
	switch p := after.Pause; {
	case p != nil && before.Pause == nil:
		say("paused room %s%s%s", name, until(&p.Mark), withText(p.Message))
	case p == nil && before.Pause != nil:
		say("resumed room %s", name)
	case p != nil && releaseOf(&after) != nil && !reflect.DeepEqual(releaseOf(&after), releaseOf(&before)):
		n := releaseOf(&after).N
		if n == 1 {
			say("released the next visitor of paused room %s", name)
		} else {
			say("released the next %d visitors of paused room %s", n, name)
		}
	case p != nil && (p.Message != before.Pause.Message || p.Mark != before.Pause.Mark):
		say("went on with the pause of room %s%s%s", name, until(&p.Mark), withText(p.Message))
	}
	switch q := after.QueueAll; {
	case q != nil && before.QueueAll == nil:
		say("made everybody wait in room %s%s", name, until(q))
	case q == nil && before.QueueAll != nil:
		say("let room %s admit again", name)
	}
	switch m := after.Message; {
	case m != nil && !reflect.DeepEqual(m, before.Message):
		say("showed the message %q in room %s%s", m.Text, name, until(&m.Mark))
	case m == nil && before.Message != nil:
		say("removed the message of room %s", name)
	}
	switch l := after.Limits; {
	case l != nil && !reflect.DeepEqual(l, before.Limits):
		say("set %s of room %s%s", limitWords(l), name, until(&l.Mark))
	case l == nil && before.Limits != nil:
		say("ended the temporary limits of room %s", name)
	}
	if len(out) == 0 {
		return "left the controls of room " + name + " as they were"
	}
	return strings.Join(out, ", and ")
}

func withText(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" with the message %q", message)
}

// limitWords names the limits that are set.
func limitWords(l *room.Limits) string {
	var out []string
	if n := l.TotalActiveUsers; n > 0 {
		out = append(out, fmt.Sprintf("total_active_users to %d", n))
	}
	if n := l.NewUsersPerMinute; n > 0 {
		out = append(out, fmt.Sprintf("new_users_per_minute to %d", n))
	}
	return strings.Join(out, " and ")
}

// roomVerbs are the operations on a room. %s is its name.
var roomVerbs = map[string]string{
	"waiting-room-create-event": "created an event of room %s", "waiting-room-update-event": "replaced an event of room %s",
	"waiting-room-patch-event": "changed an event of room %s", "waiting-room-delete-event": "deleted an event of room %s",
	"waiting-room-create-waiting-room-rule":   "added a rule to room %s",
	"waiting-room-replace-waiting-room-rules": "replaced the rules of room %s",
	"waiting-room-patch-waiting-room-rule":    "changed a rule of room %s",
	"waiting-room-delete-waiting-room-rule":   "deleted a rule of room %s",
	"restore-revision":                        "restored an earlier revision of room %s",
}

// roomSentence tells the changes of rooms and hosts.
func roomSentence(e *audit.Entry, changes []api.AppliedChange) string {
	var out []string
	for i, c := range changes {
		if i == 3 {
			out = append(out, fmt.Sprintf("%d more", len(changes)-i))
			break
		}
		verb := map[api.AppliedChangeChange]string{
			api.Made: "created %s", api.Deleted: "deleted %s", api.Changed: "changed the settings of %s",
		}[c.Change]
		if c.Kind == api.AppliedChangeKindHost {
			verb = map[api.AppliedChangeChange]string{
				api.Made: "set the site of %s", api.Deleted: "deleted the entry of %s", api.Changed: "changed the site of %s",
			}[c.Change]
		}
		text := fmt.Sprintf(verb, string(c.Kind)+" "+c.Name)
		if special := roomVerbs[e.By.Operation]; special != "" && c.Change == api.Changed {
			text = fmt.Sprintf(special, c.Name)
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return "changed only the version of the rooms"
	}
	last := len(out) - 1
	if last == 0 {
		return out[0]
	}
	return strings.Join(slices.Clone(out[:last]), ", ") + " and " + out[last]
}
