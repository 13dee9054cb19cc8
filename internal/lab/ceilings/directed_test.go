package ceilings

import (
	"strings"
	"testing"
)

// directed are worlds drawn for one rule each: with the rule the judge is content, without it a limit breaks.
var directed = []struct {
	rule   Rule
	name   string // of a further world for the rule
	told   []bool // forms; nil for both
	also   []Rule // taken out as well, in both runs: each of them suffices
	cfg    Config
	limit  int
	rate   int
	edges  int
	lossy  bool // no bootstrap
	script string
}{
	{rule: CeilingBeforeGrant, told: first, limit: 2, edges: 2, script: `
		elect; run 14; cut-store; want 0 2; run 4; admit 0 a; admit 0 b
		elect; cut 0; run 6; want 0 0; want 1 2; run 8; admit 1 c; admit 1 d`},
	{rule: LaterSeconds, limit: 2, edges: 2, script: foreign},
	{rule: CeilingBeforeAck, told: first, limit: 2, edges: 2, script: unwritten},
	{rule: CeilingBeforeLease, told: first, limit: 1, edges: 2, script: `
		absent 1; elect; run 14; want 0 1; run 4; admit! 0 a; want 0 0; run 8
		join 1; run 5; cut-store; run 4; renew 1 a
		elect; cut 1; want 0 1; run 22; admit 0 b; run 1`},
	{rule: LeaseAnswersReport, limit: 1, edges: 2, script: `
		elect; run 14; want 0 1; run 4; admit! 0 a; want 0 0; run 2; mute 0; want 1 1; run 60; admit! 1 b`},
	{rule: WatermarkStored, limit: 1, edges: 2, cfg: Config{Overlap: 20, Slack: 2}, script: `
		absent 1; elect; run 14; want 0 1; run 4; admit! 0 a; run 14
		cut 1; elect-stays; cut 0; join 1; run 14; renew 1 a; run 8; admit 0 b`},
	{rule: CompareAndSet, limit: 2, edges: 2, cfg: Config{Overlap: 20}, script: fencing},
	{rule: FenceAtStart, also: []Rule{LeaderRewrites}, limit: 4, edges: 2, cfg: Config{Overlap: 20, Slack: 2}, script: `
		elect; run 14; elect-stays; cut 0; run 1; want 0 4; run 4; admit 0 a; admit 0 b; admit 0 c; admit 0 d
		want 1 1; run 6; admit 1 e`},
	{rule: WatermarkTaken, limit: 1, edges: 2, cfg: Config{Slack: 2}, script: `
		elect; run 14; want 0 1; run 4; admit! 0 a; run 18; renew 1 a; run 4; deaf 1; run 10
		heal; elect; want 0 1; run 3; deaf-store; run 4; admit 0 b`},
	{rule: UnheardAtCeiling, limit: 1, edges: 2, script: `
		elect; run 14; want 1 1; run 6; admit! 1 a; elect; cut 1; want 0 1; run 24; admit 0 b`},
	{rule: UntilFreed, limit: 1, edges: 2, cfg: Config{Slack: 3}, script: `
		elect; run 14; want 1 1; run 6; admit! 1 a; want 1 0; run 20; renew 0 a; run 3
		elect; cut 1; run 3; cut-store; want 0 1
		run 10; renew 0 a; run 10; renew 0 a; run 10; renew 0 a; run 10; renew 0 a; run 10; admit 0 b`},
	{rule: VoidCredit, limit: 1, edges: 2, script: `
		elect; run 14; want 1 1; run 6; cut 1; want 1 0; run 60; want 0 1; run 6; admit! 0 a; want 0 0
		heal; run 8; admit 1 b`},
	{rule: Allowance, told: first, limit: 2, edges: 2, script: silent},
	{rule: LoweredWhenSent, limit: 2, edges: 2, cfg: Config{Lazy: 1}, script: `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; want 0 0; run 32; deaf-store; run 2
		want 0 2; run 6; admit 0 c; admit 0 d; elect; cut 0; want 0 0; want 1 2; run 10; admit 1 e; admit 1 f`},
	{rule: EpochPerLapse, limit: 1, edges: 2, script: `
		elect; run 14; deaf 1; want 1 1; run 5; mute 1; want 1 0; run 60; want 0 1; run 5; admit! 0 a
		want 0 0; heal; run 6; admit 1 b`},
	{rule: ListFirst, limit: 1, edges: 2, script: `
		absent 1; elect; run 14; join 1; want 1 1; run 10; admit! 1 a; elect; cut 1; want 0 1; run 12; admit 0 b`},

	{rule: StoredBeforeTold, told: second, limit: 2, edges: 2, script: unwritten},
	{rule: BelowTold, told: second, limit: 2, edges: 2, script: silent},
	{rule: LowerWhenFollowed, told: second, limit: 2, edges: 2, cfg: Config{Lazy: 1}, script: `
		elect; run 14; want 1 2; run 6; admit! 1 a; admit! 1 b; want 1 0; run 20; renew 0 a; run 3; renew 0 b
		run 7; deaf 1; run 4; renew 1 a; renew 1 b; elect; cut 1; want 0 2; run 22; admit 0 c; admit 0 d`},

	{rule: WaitForUnheard, told: first, also: []Rule{FollowEndsLease}, limit: 1, edges: 2, cfg: Config{Slack: 2}, script: overtaken},
	{rule: FollowEndsLease, told: first, also: []Rule{WaitForUnheard}, limit: 1, edges: 2, cfg: Config{Slack: 2}, script: overtaken},
	{rule: FollowEndsLease, told: second, also: []Rule{ReportAfterWatermark}, limit: 1, edges: 2, cfg: Config{Slack: 2}, script: overtaken},
	{rule: ReportAfterWatermark, told: second, limit: 1, edges: 2, cfg: Config{Slack: 2, Serve: true}, script: overtaken},

	{rule: ClockMargin, limit: 1, edges: 2, cfg: Config{Bound: 2, Slack: 2}, script: `
		clock 1 -2; clock 0 2; elect; leader-clock 2; run 14; mute 1; run 60; want 0 1; run 8; admit! 0 a; want 0 0; run 20
		want 0 1; run 11; admit 0 b; run 1; admit 0 b; run 1; admit 0 b; run 1; admit 0 b`},
	{rule: RenewLater, limit: 1, edges: 2, cfg: Config{Bound: 2, Slack: 2}, script: `
		clock 0 -2; clock 1 2; elect; leader-clock 2; run 14; want 1 1; run 8; admit! 1 a; renew 0 a; want 1 0; run 20
		want 0 1; run 11; admit 0 b; run 1; admit 0 b; run 1; admit 0 b`},

	{rule: DenyBeforeEnd, limit: 1, edges: 2, cfg: Config{Ends: true}, script: `
		elect; run 14; want 0 1; run 6; admit! 0 a; run 2; cut 1; end 0 a; run 5; admit 0 b`},
	{rule: EndOnce, limit: 2, edges: 2, cfg: Config{Ends: true}, script: `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; run 2; end 0 a; end 1 a; run 12
		admit 0 c; admit 0 d; admit 1 d`},
	{rule: NewcomerTakesPermit, limit: 1, edges: 2, cfg: Config{Ends: true}, script: `
		absent 1; elect; run 14; want 0 1; run 6; admit! 0 a; run 2; end 0 a; run 8; admit! 0 b; join 1; run 1`},

	{rule: UnheardAtCeiling, name: "-rate", limit: 9, rate: 1, edges: 2, script: `
		elect; run 14; want 1 1; run 6; elect; cut 1; want 0 1; run 5; admit! 1 a; run 3; admit 0 b`},
	{rule: VoidCredit, name: "-rate", limit: 9, rate: 1, edges: 2, script: `
		elect; run 14; want 1 1; run 6; cut 1; want 1 0; run 60; want 0 1; run 6; admit! 0 a; want 0 0
		heal; run 8; admit 1 b`},

	{rule: ServeAtCeiling, told: second, limit: 2, edges: 2, cfg: Config{Serve: true, Slack: 2}, script: guests},
	{rule: GuestsMetered, told: second, limit: 2, edges: 2, cfg: Config{Serve: true}, script: guests},
	{rule: GuestTakesPermit, told: second, limit: 2, edges: 2, cfg: Config{Serve: true}, script: `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; want 0 0; run 2; cut 1; run 14; renew 1 a; renew 1 b
		run 8; renew 0 b; run 2; want 0 2; run 12; admit 0 c; admit 0 d`},

	{rule: EmptyIsUnknown, told: second, also: []Rule{RevisionTold}, lossy: true, limit: 1, edges: 2, script: `
		elect; run 80; want 0 1; run 6; admit! 0 a; elect; empty; cut 0; want 0 0; want 1 1; run 24; admit 1 b`},
	{rule: RevisionTold, told: second, lossy: true, limit: 2, edges: 2, script: `
		elect; run 80; backup; want 0 2; run 6; admit! 0 a; admit! 0 b; run 2; elect; older; cut 0; want 0 0; want 1 1; run 20; admit 1 c`},
	{rule: LeaderRewrites, limit: 1, edges: 2, script: `
		elect; run 14; want 0 1; run 6; admit! 0 a; empty; run 8; elect; cut 0; want 0 0; want 1 1; run 20; admit 1 b`},
}

var first, second = []bool{false}, []bool{true}

// The worlds of several rules.
const (
	// A session that moved in is −1 at an early and +1 at a late second; the early one is freed by a successor
	// that has not heard the edge.
	foreign = `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; want 0 0; run 8; renew 1 a; run 4
		elect; cut 1; renew 1 b; want 0 2; run 21; admit 0 c; run 1`
	// The leader cannot write, and an edge renews two sessions of another.
	unwritten = `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; want 0 0; run 8; cut-store; run 2
		renew 1 a; run 3; renew 1 b; elect; cut 1; want 0 2; run 20; admit 0 c; run 1`
	// The predecessor goes on, and lends to an edge that its successor cannot hear.
	fencing = `
		elect; run 14; elect-stays; cut 0; run 8; want 0 2; run 5; admit 0 a; admit 0 b
		want 1 2; run 6; admit 1 c; admit 1 d`
	// An edge follows a successor, reports, and renews a session before the report arrives.
	overtaken = `
		elect; run 14; want 0 1; run 4; admit! 0 a; want 0 0; run 22; elect; run 4; late 1 6; run 2; renew 1 a; want 0 1
		run 1; run 1; run 1; run 1; run 1; run 1; run 1; admit 0 b`
	// An edge that is cut off renews two sessions of another.
	guests = `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; want 0 0; run 2; cut 1; run 14; renew 1 a; renew 1 b
		want 0 2; run 20; admit 0 c; admit 0 d`
	// An edge renews two sessions of another without a word.
	silent = `
		elect; run 14; want 0 2; run 6; admit! 0 a; admit! 0 b; want 0 0; run 10; cut 1; run 2
		renew 1 a; renew 1 b; want 0 2; run 24; admit 0 c; run 1`
)

func TestDirectedWorlds(t *testing.T) {
	for _, d := range directed {
		for _, told := range []bool{false, true} {
			if d.told != nil && d.told[0] != told {
				continue
			}
			form := "first"
			if told {
				form = "second"
			}
			t.Run(strings.Join([]string{d.rule.String() + d.name, form}, "/"), func(t *testing.T) {
				run := func(without Without) string {
					cfg := d.cfg
					cfg.Told, cfg.Bootstrap, cfg.Without = told, !d.lossy, without
					cfg.Accounts = []Account{{Limit: d.limit, Life: 30}}
					if d.rate > 0 {
						cfg.Accounts = append(cfg.Accounts, Account{Limit: d.rate, Life: minute})
					}
					return play(t, cfg, d.edges, d.script)
				}
				if broke := run(Of(d.also...)); broke != "" {
					t.Errorf("with the rule: %s", broke)
				}
				if broke := run(Of(append(d.also, d.rule)...)); broke == "" {
					t.Error("nothing breaks without the rule")
				}
			})
		}
	}
}
