package ceilings

import (
	"fmt"
	"strings"
)

// Rule is one rule of the protocol. The package document has the table.
type Rule uint8

// The rules. Those up to ListFirst are the first form of the protocol.
const (
	CeilingBeforeGrant Rule = iota
	LaterSeconds
	CeilingBeforeAck
	CeilingBeforeLease
	LeaseAnswersReport
	WatermarkStored
	CompareAndSet
	FenceAtStart
	WatermarkTaken
	WaitForUnheard
	UnheardAtCeiling
	UntilFreed
	VoidCredit
	Allowance
	LoweredWhenSent
	EpochPerLapse
	ListFirst
	FollowEndsLease

	StoredBeforeTold
	BelowTold
	LowerWhenFollowed
	ReportAfterWatermark

	ClockMargin
	RenewLater
	DenyBeforeEnd
	EndOnce
	NewcomerTakesPermit
	ServeAtCeiling
	GuestsMetered
	GuestTakesPermit
	LeaderRewrites
	EmptyIsUnknown
	RevisionTold
	BlankHoldsRest
	OutReported
	OlderRegionalUnheard
	InstanceStored
	LeaseWithinLease
	VoidHeld

	rules
)

var ruleNames = [rules]string{
	CeilingBeforeGrant: "ceiling-before-grant", LaterSeconds: "later-seconds",
	CeilingBeforeAck: "ceiling-before-ack", CeilingBeforeLease: "ceiling-before-lease",
	LeaseAnswersReport: "lease-answers-report", WatermarkStored: "watermark-stored",
	CompareAndSet: "compare-and-set", FenceAtStart: "fence-at-start", WatermarkTaken: "watermark-taken",
	WaitForUnheard: "wait-for-unheard", UnheardAtCeiling: "unheard-at-ceiling", UntilFreed: "until-freed",
	VoidCredit: "void-credit", Allowance: "allowance", LoweredWhenSent: "lowered-when-sent",
	EpochPerLapse: "epoch-per-lapse", ListFirst: "list-first", FollowEndsLease: "follow-ends-lease",
	StoredBeforeTold: "stored-before-told", BelowTold: "below-told", LowerWhenFollowed: "lower-when-followed",
	ReportAfterWatermark: "report-after-watermark",
	ClockMargin:          "clock-margin", RenewLater: "renew-later",
	DenyBeforeEnd: "deny-before-end", EndOnce: "end-once", NewcomerTakesPermit: "newcomer-takes-permit",
	ServeAtCeiling: "serve-at-ceiling", GuestsMetered: "guests-metered", GuestTakesPermit: "guest-takes-permit",
	LeaderRewrites: "leader-rewrites", EmptyIsUnknown: "empty-is-unknown", RevisionTold: "revision-told",
	BlankHoldsRest: "blank-holds-rest", OutReported: "out-reported", OlderRegionalUnheard: "older-regional-unheard",
	InstanceStored:   "instance-stored",
	LeaseWithinLease: "lease-within-lease", VoidHeld: "void-held",
}

// String returns the name by which -without takes the rule out.
func (r Rule) String() string { return ruleNames[r] }

// ParseRule returns the rule of that name.
func ParseRule(name string) (Rule, error) {
	for r, n := range ruleNames {
		if n == name {
			return Rule(r), nil
		}
	}
	return 0, fmt.Errorf("no rule is called %q; there are %s", name, strings.Join(ruleNames[:], ", "))
}

// Without is the set of rules that are taken out.
type Without uint64

// Of returns the set of these rules.
func Of(list ...Rule) (w Without) {
	for _, r := range list {
		w |= 1 << r
	}
	return w
}

// keeps reports whether the rule is in force.
func (w Without) keeps(r Rule) bool { return w&(1<<r) == 0 }
