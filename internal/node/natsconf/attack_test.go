package natsconf_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

// who is a user of the fleet.
type who struct {
	role        natsbus.Role
	place, name string
}

func (w who) String() string { return w.name + "@" + w.place }

// users lists one user of each kind of attacker, and the others as targets.
func (f *fleet) users() []who {
	out := []who{
		{natsbus.RoleGlobal, wire.Root, "global-0"},
		{natsbus.RoleOperator, wire.Root, "operator"},
		{natsbus.RoleProvision, wire.Root, "provision"},
		{natsbus.RoleNotifier, wire.Root, "notifier-0"},
	}
	for _, dc := range f.plan.DataCenters {
		out = append(out, who{natsbus.RoleRegional, dc, "regional-0"}, who{natsbus.RoleOperator, dc, "operator"},
			who{natsbus.RoleProvision, dc, "provision"})
		for _, name := range f.plan.Edges {
			out = append(out, who{natsbus.RoleEdge, dc, name})
		}
	}
	return out
}

// concrete returns a subject that matches a pattern.
func concrete(pattern string) string {
	pattern = strings.ReplaceAll(pattern, ".*", ".edge-1")
	if rest, ok := strings.CutSuffix(pattern, ".>"); ok {
		return rest + ".x"
	}
	return pattern
}

func allowed(subject string, by []string) bool {
	return slices.ContainsFunc(by, func(pattern string) bool { return server.SubjectsCollide(subject, pattern) })
}

// heard is the forbidden messages that the witnesses of all places received.
type heard struct {
	mu  sync.Mutex
	all []string
}

const marker = "ATTACK"

var domains = regexp.MustCompile(`^\$JS\.[a-z]+\.API\.`)

// stray reports whether a message can only come from an attack: it is marked, or it is a store's answer on another
// subject than the stores'.
func stray(m *nats.Msg) bool {
	if strings.Contains(string(m.Data), marker) {
		return true
	}
	stored := m.Header.Get("Nats-Stream") != "" || strings.Contains(string(m.Data), "io.nats.jetstream.api")
	return stored && !strings.HasPrefix(m.Subject, "_INBOX.") && !strings.HasPrefix(m.Subject, "_R_.") &&
		!strings.HasPrefix(m.Subject, "$JS.")
}

func TestNobodyMaySayOrHearWhatIsAnothers(t *testing.T) {
	f := start(t)
	f.tree(40)
	testkit.Eventually(t, "a visitor is let in",
		func() bool { return strings.Contains(f.visit("nairobi edge-0"), inside) })

	var strays heard
	witnesses := map[string]*nats.Conn{}
	for place := range f.servers {
		c, _, err := f.dial(place, filepath.Join(f.dir, "witness.crt"), filepath.Join(f.dir, "witness.key"))
		testkit.NoError(t, err)
		if _, err := c.Subscribe(">", func(m *nats.Msg) {
			if stray(m) {
				strays.mu.Lock()
				defer strays.mu.Unlock()
				strays.all = append(strays.all, place+": "+m.Subject)
			}
		}); err != nil {
			t.Fatal(err)
		}
		testkit.NoError(t, c.Flush())
		witnesses[place] = c
	}
	testkit.Eventually(t, "the list of data centres is stored",
		func() bool { return strings.Contains(f.stored(witnesses), "global members revision") })
	before := f.stored(witnesses)
	attempts := map[string]int{}
	for _, w := range f.users() {
		t.Run(w.String(), func(t *testing.T) {
			tried := f.attack(t, w, witnesses)
			t.Logf("%d attempts", tried)
			attempts[string(w.role)] += tried
		})
	}
	total := 0
	for _, n := range attempts {
		total += n
	}
	t.Logf("%d attempts: %v", total, attempts)
	if total < 60 {
		t.Errorf("%d attempts are too few", total)
	}
	strays.mu.Lock()
	if len(strays.all) > 0 {
		t.Errorf("%d were delivered, such as %v", len(strays.all), strays.all[:min(10, len(strays.all))])
	}
	strays.mu.Unlock()
	if after := f.stored(witnesses); after != before {
		t.Errorf("what is stored was\n%s\nand is\n%s", before, after)
	}
	testkit.Eventually(t, "a visitor is let in", func() bool { return strings.Contains(f.visit("dublin edge-1"), inside) })

	// The witnesses receive marked messages, or this test could not fail.
	for place, c := range witnesses {
		testkit.NoError(t, c.Publish("vestibule.v1."+place+".grant.nobody", []byte(marker)))
	}
	testkit.Eventually(t, "witnesses hear", func() bool {
		strays.mu.Lock()
		defer strays.mu.Unlock()
		return len(strays.all) >= len(witnesses)
	})
}

// stored returns the content of the stores, except for changing parts: the renewals of leases, promises that are
// written again, the status of the list.
func (f *fleet) stored(witnesses map[string]*nats.Conn) string {
	f.t.Helper()
	var b strings.Builder
	for _, place := range append([]string{wire.Root}, f.plan.DataCenters...) {
		js := testkit.Must(witnesses[place].JetStream())(f.t)
		for info := range js.StreamsInfo() {
			fmt.Fprintf(&b, "%s %s made %v %v", place, info.Config.Name, info.Created, info.Config.Subjects)
			if info.Config.RePublish != nil || len(info.Config.Sources) > 0 {
				fmt.Fprint(&b, " changed")
			}
			fmt.Fprintln(&b)
		}
		for _, bucket := range natsbus.Buckets(place) {
			kv := testkit.Must(js.KeyValue(bucket))(f.t)
			keys, err := kv.Keys()
			if err != nil && !errors.Is(err, nats.ErrNoKeysFound) {
				f.t.Fatal(err)
			}
			slices.Sort(keys)
			for _, key := range keys {
				e := testkit.Must(kv.Get(key))(f.t)
				switch {
				case key == "members.status":
				case bucket == "vestibule_promises" && !strings.Contains(key, "."): // written again, by its owner alone
					fmt.Fprintf(&b, "%s %s of %d bytes or so\n", place, key, len(e.Value())/1000)
				case bucket == "vestibule_leases":
					lease, _, _ := strings.Cut(string(e.Value()), `"nonce"`) // a delayed leader leads anew
					fmt.Fprintf(&b, "%s %s %s\n", place, key, lease)
				default:
					fmt.Fprintf(&b, "%s %s revision %d\n", place, key, e.Revision())
				}
			}
		}
	}
	return b.String()
}

// attack makes one user try everything forbidden, and returns the number of attempts.
func (f *fleet) attack(t *testing.T, w who, witnesses map[string]*nats.Conn) (tried int) {
	cert, key, _ := f.credentials(w.role, w.place, w.name)

	// At the servers of other places it does not exist.
	for place := range f.servers {
		if place == w.place {
			continue
		}
		tried++
		if c, _, err := f.dial(place, cert, key); err == nil {
			t.Errorf("let in at %s as %v", place, c.Opts.User)
		}
	}
	c, complaints, err := f.dial(w.place, cert, key)
	testkit.NoError(t, err)
	mine := natsbus.Allow(w.role, w.place, w.name)

	// All permissions of others, and subjects of servers and stores.
	var say, hear []string
	for _, other := range f.users() {
		a := natsbus.Allow(other.role, other.place, other.name)
		for _, s := range a.Publish {
			say = append(say, concrete(s))
		}
		hear = append(hear, a.Subscribe...)
		for _, s := range a.Subscribe {
			say = append(say, concrete(s))
		}
	}
	for _, stream := range []string{
		"KV_vestibule_documents", "KV_vestibule_leases", "KV_vestibule_promises",
		"KV_vestibule_control", "VESTIBULE_AUDIT",
	} {
		for _, domain := range []string{
			"$JS.API.", "$JS.hub.API.", "$JS.documents.API.", "$JS.nairobi.API.",
			"$JS.dublin.API.",
		} {
			say = append(say,
				domain+"STREAM.DELETE."+stream, domain+"STREAM.PURGE."+stream, domain+"STREAM.UPDATE."+stream,
				domain+"STREAM.MSG.DELETE."+stream,
				domain+"STREAM.MSG.GET."+stream, domain+"STREAM.CREATE.attack", domain+"STREAM.SNAPSHOT."+stream,
				domain+"CONSUMER.CREATE."+stream,
				domain+"CONSUMER.CREATE."+stream+".attack", domain+"CONSUMER.CREATE."+stream+".attack.x.y",
				domain+"CONSUMER.DURABLE.CREATE."+stream+".attack")
		}
	}
	for _, bucket := range []string{"documents", "leases", "promises", "control"} {
		say = append(say, "$KV.vestibule_"+bucket+".keys", "$KV.vestibule_"+bucket+".global",
			"$KV.vestibule_"+bucket+".regional.dublin", "$KV.vestibule_"+bucket+".dublin")
		hear = append(hear, "$KV.vestibule_"+bucket+".>")
	}
	say = append(say, wire.AuditSubject("rooms"), wire.AuditSubject("room.x"), "$JS.API.DIRECT.GET.VESTIBULE_AUDIT",
		"$JS.documents.API.DIRECT.GET.VESTIBULE_AUDIT", "$JS.hub.API.DIRECT.GET.VESTIBULE_AUDIT.x")
	hear = append(hear, wire.Audits, ">", "*.>", "vestibule.>", "vestibule.v1.*.grant.*", "vestibule.v1.global.copy.>",
		"_INBOX.>", "_INBOX.*.*.*.>", "$JS.>", "$SYS.>", "$KV.>", "$JS.API.>")
	slices.Sort(say)
	slices.Sort(hear)

	refused := func(what, subject string) {
		t.Helper()
		// A server strips its own domain's name first.
		mapped := domains.ReplaceAllString(subject, "$$JS.API.")
		if err := c.Flush(); err != nil {
			t.Fatalf("%s %s: %v", what, subject, err)
		}
		for {
			select {
			case err := <-complaints:
				if strings.Contains(err.Error(), `"`+subject+`"`) || strings.Contains(err.Error(), `"`+mapped+`"`) {
					return
				}
			case <-time.After(4 * time.Second):
				t.Fatalf("%s was not refused: %s", what, subject)
			}
		}
	}
	for _, s := range slices.Compact(say) {
		if allowed(s, mine.Publish) || allowed(strings.Replace(s, "$JS."+domainOf(w.place)+".API.", "$JS.API.", 1),
			mine.Publish) {
			continue
		}
		tried++
		// A consumer that would deliver to another's grants.
		body := fmt.Sprintf(`{"stream_name":"KV_vestibule_documents","config":{"description":%q,"deliver_subject":"vestibule.v1.dublin.grant.edge-1","ack_policy":"none","deliver_policy":"all"}}`, marker)
		testkit.NoError(t, c.PublishRequest(s, "_INBOX."+natsbus.NodeInbox(w.role, w.place, w.name)+".x", []byte(body)))
		refused("saying", s)
	}
	for _, s := range slices.Compact(hear) {
		if slices.Contains(mine.Subscribe, s) {
			continue
		}
		tried++
		sub := testkit.Must(c.SubscribeSync(s))(t)
		refused("hearing", s)
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrBadSubscription) {
			t.Fatal(err)
		}
	}

	// No user can direct a server's answer: its allowed requests, with another's subject as the reply. The last
	// goes to its own inbox, so that all are answered when it arrives.
	aims := []string{
		"vestibule.v1.dublin.grant.edge-1", "vestibule.v1.nairobi.report.edge-1", "vestibule.v1.global.grant.dublin",
		"vestibule.v1.global.report.dublin",
		"vestibule.v1.global.copy.keys.dublin", "$KV.vestibule_documents.rooms", "$KV.vestibule_documents.keys",
		"$KV.vestibule_leases.global",
		"$KV.vestibule_leases.regional.dublin", "$KV.vestibule_promises.dublin", "$KV.vestibule_promises.nairobi",
		"$JS.API.STREAM.PURGE.KV_vestibule_promises",
	}
	ask := slices.IndexFunc(mine.Publish, func(s string) bool { return strings.Contains(s, "API.STREAM.INFO.") })
	if ask < 0 || w.role == natsbus.RoleGlobal || w.role == natsbus.RoleProvision {
		return tried // it asks no store, or may change its targets itself
	}
	questions := map[string]string{mine.Publish[ask]: ""}
	for _, s := range mine.Publish {
		// A regional may write to its own store.
		if strings.Contains(s, ".DIRECT.GET.") && !strings.HasPrefix(s, "$JS.API.") {
			s = strings.TrimSuffix(concrete(s), ".x")
			if !strings.Contains(s, ".$KV.") {
				questions[s] = `{"last_by_subj":"$KV.vestibule_documents.keys"}`
			} else {
				questions[s] = ""
			}
		}
	}
	for question, body := range questions {
		for _, aim := range aims {
			if allowed(aim, mine.Publish) {
				continue // it may publish this itself
			}
			if aim == wire.GrantSubject(wire.Root, w.place) || aim == wire.ReportSubject(wire.Root, w.place) {
				// of its own data centre: stored data gets there, and is rejected as an invalid message (decision
				// 56)
				continue
			}
			tried++
			testkit.NoError(t, c.PublishRequest(question, aim, []byte(body)))
		}
		own := testkit.Must(c.SubscribeSync("_INBOX." + inbox(w) + ".>"))(t)
		testkit.NoError(t, c.PublishRequest(question, "_INBOX."+inbox(w)+".last", []byte(body)))
		if _, err := own.NextMsg(10 * time.Second); err != nil {
			t.Errorf("%s is not answered: %v", question, err)
		}
	}
	for _, c := range witnesses {
		testkit.NoError(t, c.Flush())
	}
	return tried
}

// domainOf returns the JetStream domain of the servers of a place.
func domainOf(place string) string {
	if place == wire.Root {
		return "hub"
	}
	return place
}

func inbox(w who) string {
	if w.role == natsbus.RoleOperator {
		return natsbus.OperatorInbox
	}
	return natsbus.NodeInbox(w.role, w.place, w.name)
}
