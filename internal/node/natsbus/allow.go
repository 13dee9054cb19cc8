package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// Role is the role of a NATS user.
type Role string

// Roles. There is one user per node; data centres and global (the place [wire.Root]) have their own NATS servers
// and users.
const (
	RoleEdge      Role = "edge"
	RoleRegional  Role = "regional"
	RoleGlobal    Role = "global"
	RoleOperator  Role = "operator"  // a person with `vestibule fleet`
	RoleProvision Role = "provision" // creates the buckets, so that no node may
	RoleNotifier  Role = "notifier"  // sends notifications to visitors
	RoleLeaf      Role = "leaf"      // the servers of a data centre, at those of global
)

// inboxPrefix begins every inbox. The following tokens name the owner, so that permissions can exclude others.
const inboxPrefix = "_INBOX."

// OperatorInbox is the inbox of operators.
const OperatorInbox = string(RoleOperator)

// NodeInbox is the inbox of a node of a data centre, or of [wire.Root].
func NodeInbox(role Role, place, name string) string {
	return place + "." + string(role) + "." + name
}

// Allowed are the permissions of a user. Everything else is denied.
type Allowed struct {
	Publish   []string
	Subscribe []string
}

// DocumentsDomain is the JetStream domain in which users without their own buckets find rooms and keys: data
// centres and operators. It is not the domain of a server but the name under which their accounts import the
// readable parts: under a server's own they would reach the API of their own account too.
const DocumentsDomain = "documents"

// api is the JetStream API subject prefix for clients of a domain's own servers, or of others.
func api(domain string) string {
	if domain == "" {
		return "$JS.API."
	}
	return "$JS." + domain + ".API."
}

// reading are the permissions to read some keys of a bucket; "" for all keys and for newer entries.
func reading(domain, bucket string, keys ...string) []string {
	out := []string{api(domain) + "STREAM.INFO.KV_" + bucket}
	for _, key := range keys {
		direct := api(domain) + "DIRECT.GET.KV_" + bucket
		if key == "" {
			out = append(out, direct, direct+".$KV."+bucket+".>")
		} else {
			out = append(out, direct+".$KV."+bucket+"."+key)
		}
	}
	return out
}

// watching are the permissions of a consumer of a bucket with matching keys.
func watching(bucket, keys string) []string {
	return []string{
		api("") + "CONSUMER.CREATE.KV_" + bucket + ".*.$KV." + bucket + "." + keys,
		api("") + "CONSUMER.DELETE.KV_" + bucket + ".*",
		"$JS.FC.KV_" + bucket + ".>",
	}
}

func writing(bucket string, keys ...string) (out []string) {
	for _, key := range keys {
		out = append(out, "$KV."+bucket+"."+key)
	}
	return out
}

// AnswersOften reports whether a request on a subject gets several answers.
func AnswersOften(subject string) bool {
	return strings.HasSuffix(subject, "DIRECT.GET."+PushStream) || strings.Contains(subject, "CONSUMER.MSG.NEXT.")
}

// standing are the permissions to stand for leadership under a name.
func standing(name string) []string {
	return slices.Concat(reading("", leasesBucket, name), watching(leasesBucket, name), writing(leasesBucket, name))
}

// Allow returns the permissions of a user at the servers of a place: a data centre or [wire.Root]. For a leaf,
// place is the data centre whose servers join those of global.
//
// Only globals receive [wire.Copies], which contain keys. Only candidates for leadership create consumers, of a
// bucket without secrets. Only regionals purge, in the bucket of their own data centre's promises.
func Allow(role Role, place, name string) Allowed {
	inbox := inboxPrefix + NodeInbox(role, place, name) + ".>"
	switch role {
	case RoleEdge:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.ReportSubject(place, name), wire.CopySubject("keys", place),
				wire.CopySubject(wire.EdgeCopy("rooms"), place), wire.CopySubject(wire.EdgeCopy("controls"), place),
				wire.CopySubject(wire.EdgeCopy("draws"), place), wire.Pushes,
			}, reading(DocumentsDomain, documentsBucket, "")),
			Subscribe: []string{wire.GrantSubject(place, name), wire.AskSubject, inbox},
		}
	case RoleRegional:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.GrantSubject(place, "*"), wire.ReportSubject(wire.Root, place), wire.OrderDoneSubject(place),
				wire.CopySubject("*", place), inboxPrefix + OperatorInbox + ".>",
			}, reading(DocumentsDomain, documentsBucket, ""), standing("regional."+place),
				reading("", promisesBucket, place, place+".>"), writing(promisesBucket, place, place+".>"),
				watching(promisesBucket, place+".>"), []string{api("") + "STREAM.PURGE.KV_" + promisesBucket}),
			Subscribe: []string{
				wire.Reports(place), wire.GrantSubject(wire.Root, place), wire.OrderSubject(place), wire.ForgetSubject(place),
				wire.RejoinSubject(place), wire.AskSubject, inbox,
			},
		}
	case RoleGlobal:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.GrantSubject(wire.Root, "*"), wire.OrderSubject("*"), wire.AskSubject, wire.CopySubject("*", wire.Root),
				wire.NumbersSubject, wire.FleetSubject, wire.CallSubject,
			}, standing(wire.Root), reading("", documentsBucket, ""), writing(documentsBucket, ">"),
				watching(documentsBucket, ">"), reading("", controlBucket, ""), writing(controlBucket, ">"),
				watching(controlBucket, ">"),
				[]string{wire.Audits, wire.Histories, api("") + "CONSUMER.CREATE." + OutboxStream + ".>"}, readingStreams()),
			Subscribe: []string{
				wire.Reports(wire.Root), wire.OrderDoneSubject("*"), wire.AskSubject, wire.Copies, wire.NumbersSubject,
				wire.FleetSubject, wire.NotifyingSubject, wire.HistorySubject(wire.HistoryLog, "*"), inbox,
			},
		}
	case RoleNotifier:
		return Allowed{
			Publish: slices.Concat(reading(DocumentsDomain, documentsBucket, notifierKey), []string{
				wire.Pushes, wire.Outboxes, wire.NotifierSubject, wire.NotifyingSubject, "$JS.ACK." + OutboxStream + ".>",
				api(DocumentsDomain) + "STREAM.INFO." + PushStream, api(DocumentsDomain) + "DIRECT.GET." + PushStream,
				api(DocumentsDomain) + "STREAM.INFO." + OutboxStream,
				api(DocumentsDomain) + "CONSUMER.INFO." + OutboxStream + ".*",
				api(DocumentsDomain) + "CONSUMER.MSG.NEXT." + OutboxStream + ".*",
			}),
			Subscribe: []string{wire.CallSubject, wire.NotifierSubject, inbox},
		}
	case RoleOperator:
		a := Allowed{Subscribe: []string{inboxPrefix + OperatorInbox + ".>"}}
		if place == wire.Root {
			a.Publish = reading(DocumentsDomain, documentsBucket, "members", "members.status", "init")
			for _, subject := range writing(documentsBucket, "members", "init") {
				a.Publish = append(a.Publish, api(DocumentsDomain)+subject)
			}
		} else {
			a.Publish = []string{wire.ForgetSubject(place), wire.RejoinSubject(place)}
		}
		return a
	case RoleProvision:
		a := Allowed{Publish: []string{api("") + "INFO"}, Subscribe: []string{inbox}}
		for _, stream := range Streams(place) {
			for _, verb := range []string{"INFO", "CREATE", "UPDATE"} {
				a.Publish = append(a.Publish, api("")+"STREAM."+verb+"."+stream)
			}
		}
		if place == wire.Root {
			a.Publish = append(a.Publish, api("")+"CONSUMER.CREATE."+OutboxStream+".>")
		}
		return a
	case RoleLeaf:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.ReportSubject(wire.Root, place), wire.OrderDoneSubject(place), wire.CopySubject("*", place), wire.Pushes,
			}, reading(DocumentsDomain, documentsBucket, "")),
			Subscribe: []string{
				wire.GrantSubject(wire.Root, place), wire.OrderSubject(place), wire.AskSubject, inboxPrefix + place + ".>",
			},
		}
	}
	return Allowed{} // no permissions
}

// Buckets returns the buckets on the servers of a place.
func Buckets(place string) []string {
	if place == wire.Root {
		return []string{documentsBucket, leasesBucket, controlBucket}
	}
	return []string{leasesBucket, promisesBucket}
}

// Streams returns the streams on the servers of a place.
func Streams(place string) (out []string) {
	for _, bucket := range Buckets(place) {
		out = append(out, "KV_"+bucket)
	}
	if place == wire.Root {
		for _, config := range rootStreams() {
			out = append(out, config.Name)
		}
	}
	return out
}

// rootStreams returns the streams of global beside the buckets.
func rootStreams() []*jetstream.StreamConfig {
	return append([]*jetstream.StreamConfig{auditStream, pushStream, outboxStream}, historyStreams[:]...)
}

// rootStream returns the configuration of one of them.
func rootStream(name string) *jetstream.StreamConfig {
	all := rootStreams()
	return all[slices.IndexFunc(all, func(c *jetstream.StreamConfig) bool { return c.Name == name })]
}

// readingStreams returns the subjects to read them.
func readingStreams() (out []string) {
	for _, config := range rootStreams() {
		out = append(out, api("")+"STREAM.INFO."+config.Name, api("")+"DIRECT.GET."+config.Name)
	}
	return out
}

// Provision creates missing buckets and streams of a place, with replicas or [Auto]. It returns the names of those
// created.
func (c *Conn) Provision(ctx context.Context, place string, replicas int) (made []string, err error) {
	js, err := c.jetStream()
	if err != nil {
		return nil, err
	}
	var differ []string
	for _, stream := range Streams(place) {
		name, bucket := strings.CutPrefix(stream, "KV_")
		is, err := js.Stream(ctx, stream)
		if err == nil && replicas != Auto && is.CachedInfo().Config.Replicas != replicas {
			differ = append(differ, stream)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if bucket {
				_, err = makeBucket(ctx, js, name, replicas)
			} else {
				_, err = makeStream(ctx, js, *rootStream(stream), replicas)
			}
			if err == nil {
				made = append(made, stream)
			}
		}
		if err != nil {
			return made, fmt.Errorf("%s: %w", name, err)
		}
	}
	if place == wire.Root {
		err = makeShards(ctx, js)
	}
	if err == nil && len(differ) > 0 {
		err = &ReplicasError{differ, replicas}
	}
	return made, err
}

// ReplicasError means that streams exist with other replicas than asked for. Only an operator changes those.
type ReplicasError struct {
	Streams  []string
	Replicas int
}

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("streams exist with other replicas than %d: %s: nats stream edit %s --replicas %[1]d", e.Replicas,
		strings.Join(e.Streams, ", "), e.Streams[0])
}
