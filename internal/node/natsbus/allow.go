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

// Role is what a user of NATS is.
type Role string

// The roles. There is one user per node; data centres and global (the place
// [wire.Root]) have NATS servers, and users, of their own.
const (
	RoleEdge      Role = "edge"
	RoleRegional  Role = "regional"
	RoleGlobal    Role = "global"
	RoleOperator  Role = "operator"  // who runs `vestibule fleet`
	RoleProvision Role = "provision" // who makes the buckets, so that no node may
	RoleLeaf      Role = "leaf"      // the servers of a data centre, at global's
)

// inboxPrefix begins every inbox. Whose it is stands in the tokens that follow, so
// that nobody can be allowed another's.
const inboxPrefix = "_INBOX."

// OperatorInbox is where answers to people arrive.
const OperatorInbox = string(RoleOperator)

// NodeInbox is where answers to a node of a data centre, or of [wire.Root], arrive.
func NodeInbox(role Role, place, name string) string {
	return place + "." + string(role) + "." + name
}

// Allowed is what a user may say and hear. All else is refused.
type Allowed struct {
	Publish   []string
	Subscribe []string
}

// DocumentsDomain is the JetStream domain in which users without buckets of their own
// find rooms and keys: those of data centres, and operators. It is no domain of a
// server but the name under which their accounts import what they may read: under a
// server's own they would reach the API of their own account too.
const DocumentsDomain = "documents"

// api is the JetStream API as clients of a domain's own servers name it, or as
// those of other servers do.
func api(domain string) string {
	if domain == "" {
		return "$JS.API."
	}
	return "$JS." + domain + ".API."
}

// reading is what reading some keys of a bucket takes; "" for all and for what is
// newer than some revision.
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

// watching is what a consumer of a bucket takes, for the keys that match.
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

// standing is what standing for leadership under a name takes.
func standing(name string) []string {
	return slices.Concat(reading("", leasesBucket, name), watching(leasesBucket, name), writing(leasesBucket, name))
}

// Allow returns what a user may say and hear at the servers of a place: a data
// centre or [wire.Root]. For a leaf, place is the data centre whose servers join
// those of global.
//
// Nobody but globals hears [wire.Copies]: there are keys in it. Nobody makes a
// consumer but who may stand for leadership, of a bucket that holds no secret. Only
// regionals purge, in the bucket of their own data centre's promises.
func Allow(role Role, place, name string) Allowed {
	inbox := inboxPrefix + NodeInbox(role, place, name) + ".>"
	switch role {
	case RoleEdge:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.ReportSubject(place, name), wire.CopySubject("keys", place),
			}, reading(DocumentsDomain, documentsBucket, "")),
			Subscribe: []string{wire.GrantSubject(place, name), wire.AskSubject, inbox},
		}
	case RoleRegional:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.GrantSubject(place, "*"), wire.ReportSubject(wire.Root, place), wire.CopySubject("*", place), inboxPrefix + OperatorInbox + ".>",
			}, reading(DocumentsDomain, documentsBucket, ""), standing("regional."+place),
				reading("", promisesBucket, place, place+".>"), writing(promisesBucket, place, place+".>"),
				watching(promisesBucket, place+".>"), []string{api("") + "STREAM.PURGE.KV_" + promisesBucket}),
			Subscribe: []string{
				wire.Reports(place), wire.GrantSubject(wire.Root, place), wire.ForgetSubject(place), wire.RejoinSubject(place), wire.AskSubject, inbox,
			},
		}
	case RoleGlobal:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.GrantSubject(wire.Root, "*"), wire.AskSubject, wire.CopySubject("*", wire.Root), wire.NumbersSubject, wire.FleetSubject,
			}, standing(wire.Root), reading("", documentsBucket, ""), writing(documentsBucket, ">"), watching(documentsBucket, ">"),
				reading("", controlBucket, ""), writing(controlBucket, ">"), watching(controlBucket, ">"),
				[]string{wire.Audits, api("") + "STREAM.INFO." + auditStream, api("") + "DIRECT.GET." + auditStream}),
			Subscribe: []string{wire.Reports(wire.Root), wire.AskSubject, wire.Copies, wire.NumbersSubject, wire.FleetSubject, inbox},
		}
	case RoleOperator:
		a := Allowed{Subscribe: []string{inboxPrefix + OperatorInbox + ".>"}}
		if place == wire.Root {
			a.Publish = append(reading(DocumentsDomain, documentsBucket, "members", "members.status"),
				api(DocumentsDomain)+writing(documentsBucket, "members")[0])
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
		return a
	case RoleLeaf:
		return Allowed{
			Publish: slices.Concat([]string{
				wire.ReportSubject(wire.Root, place), wire.CopySubject("*", place),
			}, reading(DocumentsDomain, documentsBucket, "")),
			Subscribe: []string{wire.GrantSubject(wire.Root, place), wire.AskSubject, inboxPrefix + place + ".>"},
		}
	}
	return Allowed{} // nobody
}

// Buckets are those that the servers of a place keep.
func Buckets(place string) []string {
	if place == wire.Root {
		return []string{documentsBucket, leasesBucket, controlBucket}
	}
	return []string{leasesBucket, promisesBucket}
}

// Streams are those that the servers of a place keep.
func Streams(place string) (out []string) {
	for _, bucket := range Buckets(place) {
		out = append(out, "KV_"+bucket)
	}
	if place == wire.Root {
		out = append(out, auditStream)
	}
	return out
}

// Provision makes the buckets and streams of a place that are missing, with replicas or [Auto].
// It returns the names of those that it made.
func (c *Conn) Provision(ctx context.Context, place string, replicas int) (made []string, err error) {
	js, err := c.jetStream()
	if err != nil {
		return nil, err
	}
	for _, stream := range Streams(place) {
		name, bucket := strings.CutPrefix(stream, "KV_")
		_, err := js.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if bucket {
				_, err = makeBucket(ctx, js, name, replicas)
			} else {
				_, err = makeAudit(ctx, js, replicas)
			}
			if err == nil {
				made = append(made, stream)
			}
		}
		if err != nil {
			return made, fmt.Errorf("%s: %w", name, err)
		}
	}
	return made, nil
}
