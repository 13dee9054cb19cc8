// Package mutant holds the switches that remove a rule of the hard limit. A rule that nothing would miss is not
// tested: `make mutants` builds the nodes with the tag `mutants`, removes the rules one by one, and requires that a
// named test or a simulated fleet detects each removal.
//
// The mutants themselves are patches to the product's files (patches), which command overlay applies for such a
// build; no product file names one. In every other build [On] is the constant false. See decision 17.
package mutant

// ID is one mutant; the zero value is none.
type ID uint8

// The mutants, by the rule that they remove (docs/GUARANTEES.md).
const (
	None ID = iota

	// Rule 1: an unspent permit, a valid lease, one step.
	NoPermit
	NoRatePermit
	ChargeLate
	LeaseForever
	LeaseFromReceipt
	ShortWindow

	// Rule 2: unreported renewals are bounded in advance.
	NoRenewalCeiling

	// Rule 3: unreachable permits are reserved.
	NothingReserved
	NoRateReserved
	NoRateReuse
	RateAgesLong
	LateFinalWord
	SnapshotUnbounded
	CeilingFree
	VoidSettles
	OlderSnapshotSettles
	BackupSettles
	RosterForgetsReserved

	// Rule 4: watermark ageing, and a session count that is never too low.
	AgeByClock
	ClockBehindWatermark
	NoJudgeMargin
	NegativesDropped
	NegativesInherited
	DoublesWithoutBase
	TimeOnTrust
	TimeOfOtherBoot
	RecordNotAged
	NegativeRoundsLater

	// Rule 5: silence does not mean empty.
	NoHold
	LostIsFree
	LostIsStill
	LifeForgotten
	NoPin
	PredecessorsAge
	TwinSucceeds
	CopyProves
	BeliedEnded
	LateWordUncounted
	ForgetTheLiving
	LossUnmetered
	ForgottenIsFree
	StampsAdrift
	TimelessUnpin
	IsolationIsDeath
	LateWordOfTheDead
	RosterForgotten
	EmptyStoreIsNew
	OwnMemoryTrusted
	RivalUnseen
	GoneForgotten
	WaitForgotten
	TornIsWhole

	// Rule 6: partition_policy.
	CapRenews
	NoRegionalLease
	ReclaimEarly
	ResumeUncovered

	// Rule 7: tickets of another data centre.
	RenewForeign
	MoveWithoutPermit
	EndBeforeKnown
	LeftUncleared
	OlderTicketForgotten
	LostMovesForgiven
	UnknownEndAsShown

	// Rule 8: fencing.
	NoHandshake
	EdgeFollowsAnybody
	CentreFollowsAnybody
	NoFencing
	PromiseUnsaved
	StoreNotFencing
	LeaseBeforeRoster
	NoRosterOnRevival
	WaitKept
	LeaseEpochIgnored
	EndOfOldLeaseEpoch
	ZombieHeard
	VoidAgain

	// Rule 9: the coordinator may have lost everything.
	FreeIsLimit
	AdoptWithoutPromise
	ReconstructedUsed
	SpareTwice
	BlankBelieved
	OldListLeads
	UnlistedIgnored
	NewcomerLentEarly
	DrainForgets
	DrainedLent
	ForcedForgotten
	CopiesMerged
	EnrollingLent
	IdentityUnsaved
	EdgesNotAsked
	CopyOwns
	CopyConfirmed
	BootstrapInsists
	BoundForgotten
	BoundUnsaved
	DebtOnCredit
	AloneForgets
	OldListOwesNothing
	LateAnswerIsLoss
	FloorReturned
	FloorsForever
	FloorsOfTheLost

	// Rule 10: nothing a visitor sends opens a room.
	BadCookieAdmits
	PanicPasses
	FrontTakesFirst
	FrontWaitsAsItIs
	AnyRoomsTicket
	EpochIgnored
	UnknownKeyOverwritten
	NeverBehind
	ReplayCounts
	PlaceNotMoved
	CopyRenews
	EdgesFollowAlone
	NetworkCountsAny
	BindingIgnored
	ReplacedForgiven
	AsideEnters
	PreflightPasses
	RuleOneReading

	// Operators' controls.
	ShutAdmits
	RejectQueues
	RenewalStays
	PassthroughStays

	// Rule 11: a release admits at most its number.
	ReleaseUnmarked
	ReleaseMarkedTwice
	PassesBackTwice
	PassesOfThePredecessor
	PassRecycles
	PassOfOldRelease
	ControlsForever

	// Events.
	PrequeueAdmits
	PrequeueByOwnClock
	EventEarly
	EventsOverlap

	// Draws.
	SecretMadeTwice
	DrawBeforeSettle
	DrawLateJoiner
	DrawIgnored

	// Rule 13: both sides of a hop drop a removed room.
	DroppedCountersStay
	DroppedLoanStays

	// Rounds of a random room.
	RoundTakesNewcomers
	RoundsAlike
	CallForgotten

	count
)

// Mutant describes a mutant.
type Mutant struct {
	ID   ID
	Name string
	Rule int // of docs/GUARANTEES.md
	Says string
}

// list has the name, the rule and the description of each.
var list = [count]struct {
	name string
	rule int
	says string
}{
	NoPermit:         {"no-permit", 1, "an edge admits without a permit of T in hand"},
	NoRatePermit:     {"no-rate-permit", 1, "an edge admits without a permit of R in hand"},
	ChargeLate:       {"charge-late", 1, "an admission is charged with the next report, after its answer"},
	LeaseForever:     {"lease-forever", 1, "an edge goes on under a lease that has ended"},
	LeaseFromReceipt: {"lease-from-receipt", 1, "an edge counts its lease from the arrival of the answer"},
	ShortWindow:      {"short-window", 1, "a used right of R is free again after 50 s"},

	NoRenewalCeiling: {"no-renewal-ceiling", 2, "an edge renews as often as it likes without a word"},

	NothingReserved: {"nothing-reserved", 3, "nothing is reserved for an edge whose lease has lapsed"},
	NoRateReserved: {
		"no-rate-reserved", 3, "permits of R of an edge whose lease has lapsed are lent again at once",
	},
	RateAgesLong: {
		"rate-ages-long", 3, "a permit of R comes back from an edge before it comes free there, after a takeover",
	},
	NoRateReuse: {
		"no-rate-reuse", 3, "a permit of R that came free before the lease of a silent edge ended is not used again there",
	},
	LateFinalWord: {"late-final-word", 3, "a final report is the truth however late it arrives"},
	SnapshotUnbounded: {
		"snapshot-unbounded", 3, "an edge stamps beyond the ceilings of the snapshot in its data folder",
	},
	CeilingFree: {
		"ceiling-free", 3, "the last report of a killed edge does not count what it may have stamped since its snapshot",
	},
	VoidSettles: {
		"void-settles", 3, "an edge ignores its ceilings before the regional knows that its data folder is void",
	},
	OlderSnapshotSettles: {
		"older-snapshot-settles", 3, "a data folder with an older snapshot than the edge reported settles it",
	},
	BackupSettles:         {"backup-settles", 3, "a snapshot that was restored from a backup settles an edge"},
	RosterForgetsReserved: {"roster-forgets-reserved", 3, "the next aggregator does not learn what was reserved"},

	AgeByClock:           {"age-by-clock", 4, "a second is freed by the clock, whoever has not reported past it"},
	ClockBehindWatermark: {"clock-behind-watermark", 4, "an edge's clock may read less than the watermark it was told"},
	NoJudgeMargin: {
		"no-judge-margin", 4, "an edge that nobody waits for judges sessions by its clock as it stands",
	},
	NegativesDropped: {"negatives-dropped", 4, "a second that counts less than none is clamped when it is freed"},
	NegativesInherited: {
		"negatives-inherited", 4, "a new aggregator subtracts tickets renewed away whose stamps its predecessor has freed",
	},
	DoublesWithoutBase:  {"doubles-without-base", 4, "what led up to the first stamping known is cancelled as a double"},
	TimeOnTrust:         {"time-on-trust", 4, "a coordinator believes the time of a data centre that is unsure of it"},
	TimeOfOtherBoot:     {"time-of-other-boot", 4, "a process believes a stored time of another start of its machine"},
	RecordNotAged:       {"record-not-aged", 4, "a stored time is as exact as on the day it was stored"},
	NegativeRoundsLater: {"negative-rounds-later", 4, "on a coarser grid a ticket renewed away is subtracted for longer"},

	NoHold:     {"no-hold", 5, "edges that a new aggregator awaits hold up nothing"},
	LostIsFree: {"lost-is-free", 5, "an edge that a new aggregator awaited in vain holds up nothing any more"},
	LostIsStill: {
		"lost-is-still", 5, "an edge that a new aggregator awaited in vain is taken to have stopped renewing, under serve too",
	},
	LifeForgotten: {"life-forgotten", 5, "a new aggregator knows only the session_duration that is in force"},
	NoPin:         {"no-pin", 5, "under serve the sessions of a silent edge age"},
	PredecessorsAge: {
		"predecessors-age", 5, "under serve a silent edge renews no sessions that the process before it stamped",
	},
	TwinSucceeds: {"twin-succeeds", 5, "any newer process of an edge's name has succeeded it"},
	CopyProves:   {"copy-proves", 5, "a copy of a data folder proves what the folder does"},
	BeliedEnded: {
		"belied-ended", 5, "an edge that is heard after another one told that it has ended is taken to have ended all the same",
	},
	LateWordUncounted: {
		"late-word-uncounted", 5, "what an edge tells of that was given up and is alive counts nowhere until it is renewed",
	},
	ForgetTheLiving: {"forget-the-living", 5, "an operator can declare an edge ended that is heard"},
	LossUnmetered: {
		"loss-unmetered", 5, "what an edge may go on renewing that was declared lost after lost_after is told nowhere",
	},

	ForgottenIsFree: {"forgotten-is-free", 5, "what an edge held that an operator declared ended is free at once"},
	StampsAdrift:    {"stamps-adrift", 5, "an edge that is unsure of the time stamps by its clock as it stands"},
	TimelessUnpin: {
		"timeless-unpin", 5, "what a silent edge that has ended may have renewed is waited for by an aggregator that does not know the time",
	},
	IsolationIsDeath: {"isolation-is-death", 5, "silence of all starts the clock of lost_after"},
	LateWordOfTheDead: {
		"late-word-of-the-dead", 5, "what was reserved for a process that ended is forgotten when it is given up",
	},
	RosterForgotten: {"roster-forgotten", 5, "a new aggregator awaits no edge of its predecessor"},
	EmptyStoreIsNew: {"empty-store-is-new", 5, "a store that lost its memory counts as a new data centre"},
	TornIsWhole:     {"torn-is-whole", 5, "promises of which a section was lost are taken for all there were"},
	WaitForgotten:   {"wait-forgotten", 5, "every new aggregator begins to wait for silent edges anew"},
	OwnMemoryTrusted: {
		"own-memory-trusted", 5, "over an empty store an aggregator takes what it stored last for all there was, whoever led since",
	},
	RivalUnseen: {
		"rival-unseen", 5, "over an empty store an aggregator goes by its own memory although it saw somebody else lead since",
	},
	GoneForgotten: {
		"gone-forgotten", 5, "edges that are gone for good are struck from the roster with what they left",
	},

	CapRenews:       {"cap-renews", 6, "under cap an isolated edge renews"},
	NoRegionalLease: {"no-regional-lease", 6, "under cap a data centre goes on when global's lease has ended"},
	ReclaimEarly: {
		"reclaim-early", 6, "global reclaims when the data centre's lease has ended, whatever is still valid",
	},
	ResumeUncovered: {"resume-uncovered", 6, "under cap stamping resumes before edges have given back what was voided"},

	RenewForeign:      {"renew-foreign", 7, "an edge renews tickets of other data centres"},
	MoveWithoutPermit: {"move-without-permit", 7, "a session that moves to another data centre takes no permit there"},
	EndBeforeKnown:    {"end-before-known", 7, "the old home forgets a session before its edges know not to renew it"},
	LeftUncleared: {
		"left-uncleared", 7, "the slot of who left is free before other data centres refuse the ticket",
	},
	OlderTicketForgotten: {
		"older-ticket-forgotten", 7, "the slot of who moved and left is free while the ticket from before the move is valid",
	},
	LostMovesForgiven: {
		"lost-moves-forgiven", 7, "the permit of a session that left is free although moves that were not reported may have renewed it",
	},

	UnknownEndAsShown: {
		"unknown-end-as-shown", 7, "the slot of who left, of whose stampings nobody told, is free while newer tickets of the session are valid",
	},

	NoHandshake:          {"no-handshake", 8, "an aggregator adopts edges that have not promised to follow it"},
	EdgeFollowsAnybody:   {"edge-follows-anybody", 8, "an edge acts on grants of aggregators that were replaced"},
	CentreFollowsAnybody: {"centre-follows-anybody", 8, "a data centre acts on grants of coordinators that were replaced"},
	NoFencing:            {"no-fencing", 8, "no term is looked at anywhere"},
	PromiseUnsaved:       {"promise-unsaved", 8, "a data centre acts on a promise that is not stored"},
	StoreNotFencing:      {"store-not-fencing", 8, "the store takes writes of an owner that was replaced"},
	LeaseBeforeRoster:    {"lease-before-roster", 8, "an edge gets its lease before the roster that names it is stored"},
	WaitKept:             {"wait-kept", 8, "an edge that has a lease again stays on the roster as one whose wait is over"},
	NoRosterOnRevival:    {"no-roster-on-revival", 8, "an edge that comes back stays dead on the roster"},
	LeaseEpochIgnored:    {"lease-epoch-ignored", 8, "an edge acts on grants of a lease epoch that is over"},
	EndOfOldLeaseEpoch: {
		"end-of-old-lease-epoch", 8, "the end of an older lease epoch is taken for that of the newer one",
	},
	ZombieHeard: {"zombie-heard", 8, "global hears aggregators that were replaced"},
	VoidAgain:   {"void-again", 8, "every grant of a newer generation voids the books again"},

	FreeIsLimit:         {"free-is-limit", 9, "a new coordinator takes for free whatever it does not know to be lent"},
	AdoptWithoutPromise: {"adopt-without-promise", 9, "a coordinator adopts books that another one may still raise"},
	ReconstructedUsed:   {"reconstructed-used", 9, "books that were only reckoned are used at once"},
	BoundForgotten: {
		"bound-forgotten", 9, "a new coordinator does not learn that more may be lent than a limit, lowered since, allows",
	},
	BoundUnsaved: {"bound-unsaved", 9, "a new regional does not know the bound that its predecessor knew"},
	DebtOnCredit: {"debt-on-credit", 9, "visitors are called by idle permits that are to pay a debt"},
	AloneForgets: {
		"alone-forgets", 9, "a data centre that is cut off uses all that it holds, although it heard of a lowered limit",
	},
	OldListOwesNothing: {
		"old-list-owes-nothing", 9, "a lowered limit binds nobody while the coordinator has an older list of data centres",
	},
	LateAnswerIsLoss: {
		"late-answer-is-loss", 9, "a late answer that asks for the promise is taken to say that global has no ledger",
	},
	FloorReturned: {"floor-returned", 9, "permits are returned although a successor may use them by a stored floor"},
	FloorsForever: {
		"floors-forever", 9, "a stored floor is used although global may have lent the permits to others since",
	},
	FloorsOfTheLost: {"floors-of-the-lost", 9, "a floor is used although the store has lost a part of its data"},
	SpareTwice:      {"spare-twice", 9, "what came back is lent more than once while books are missing"},
	BlankBelieved:   {"blank-believed", 9, "a data centre without books is taken to hold nothing"},

	OldListLeads: {
		"old-list-leads", 9, "a coordinator lends by a list of data centres that is older than one it was told of",
	},
	UnlistedIgnored:   {"unlisted-ignored", 9, "what a data centre that nobody listed holds is not counted"},
	NewcomerLentEarly: {"newcomer-lent-early", 9, "a data centre that was added is lent to before the others know of it"},
	CopiesMerged:      {"copies-merged", 9, "a copy of a data centre is taken for its successor"},
	EnrollingLent:     {"enrolling-lent", 9, "a member gets permits before its cluster ID is in the list"},
	IdentityUnsaved:   {"identity-unsaved", 9, "a data centre speaks before its cluster ID is stored"},
	EdgesNotAsked: {
		"edges-not-asked", 9, "an aggregator that finds the store lost does not ask its edges for the cluster ID",
	},
	CopyConfirmed: {"copy-confirmed", 9, "permits that a copy reconstructs are used there"},
	CopyOwns:      {"copy-owns", 4, "an edge of a copy treats sessions of the listed data centre as its own"},
	ForcedForgotten: {
		"forced-forgotten", 9, "a new coordinator does not wait for a data centre that was removed by force and may hold permits",
	},
	DrainForgets: {"drain-forgets", 9, "a data centre that drains leaves the list while it holds permits"},
	DrainedLent: {
		"drained-lent", 9, "a data centre that has drained is lent permits until the list without it is known",
	},
	BootstrapInsists: {
		"bootstrap-insists", 9, "a fleet or data centre that was said to be new is taken for new whatever data centres and edges tell",
	},

	BadCookieAdmits: {"bad-cookie-admits", 10, "a cookie that does not open is a pass"},
	PanicPasses:     {"panic-passes", 10, "a request on which the edge panics goes to the origin"},
	FrontTakesFirst: {
		"front-takes-first", 10, "of two lines that tell the edge which request a front asks about, the first is believed",
	},
	FrontWaitsAsItIs: {
		"front-waits-as-it-is", 10, "a waiting page with status 200 is told to a front as it is, which takes it for an admission",
	},
	AnyRoomsTicket: {"any-rooms-ticket", 10, "a ticket opens in every room"},
	EpochIgnored:   {"epoch-ignored", 10, "tickets of an earlier epoch are good"},
	NeverBehind:    {"never-behind", 10, "an edge that was cut off takes itself to know every key"},
	UnknownKeyOverwritten: {
		"unknown-key-overwritten", 10, "a ticket under a key that an edge has not heard of is none, and its visitor gets another",
	},
	ReplayCounts:     {"replay-counts", 10, "a ticket that was away counts as somebody who waits at its first touch"},
	PlaceNotMoved:    {"place-not-moved", 10, "who is given another place stays counted under the old one too"},
	CopyRenews:       {"copy-renews", 10, "a copy of a session's ticket is renewed like any"},
	NetworkCountsAny: {"network-counts-any", 10, "one network adds any number of people to those who wait"},
	ReplacedForgiven: {"replaced-forgiven", 10, "a replaced version of a ticket is no sign of a copy"},
	AsideEnters:      {"aside-enters", 10, "a picture or a robot's file takes a slot at its first request"},
	PreflightPasses: {
		"preflight-passes", 10, "a preflight that nobody admitted goes to the site as it came, and the site's answer to the visitor",
	},
	RuleOneReading: {
		"rule-one-reading", 10, "a rule lets past what it matches as the path stands, however sites read it",
	},
	BindingIgnored:   {"binding-ignored", 10, "a session's ticket is good in any network, whatever the room says"},
	EdgesFollowAlone: {"edges-follow-alone", 10, "each edge follows a line of copies of its own"},

	ShutAdmits:       {"shut-admits", 1, "an edge admits to a room to which an operator lets nobody in"},
	RejectQueues:     {"reject-queues", 10, "a room that rejects gives places in a line"},
	RenewalStays:     {"renewal-stays", 1, "sessions are renewed where their renewal is switched off"},
	PassthroughStays: {"passthrough-stays", 1, "no limit binds once a room was passthrough, whatever its method is now"},
	ControlsForever:  {"controls-forever", 1, "a limit for now goes on after its end"},

	PrequeueAdmits: {"prequeue-admits", 1, "an edge admits while people gather for an event"},
	PrequeueByOwnClock: {
		"prequeue-by-own-clock", 1, "an edge opens at the start of an event by its clock as it stands",
	},
	EventEarly: {
		"event-early", 1, "limits of an event that are higher are in force before it has certainly begun, and lower ones once it has",
	},
	EventsOverlap:   {"events-overlap", 1, "events of a room may overlap"},
	SecretMadeTwice: {"secret-made-twice", 12, "a leader makes another secret of a draw where there is one"},
	DrawLateJoiner:  {"draw-late-joiner", 12, "who joined when entries had closed takes part in the draw"},
	DrawIgnored:     {"draw-ignored", 12, "who was drawn goes on standing where they joined"},
	DrawBeforeSettle: {
		"draw-before-settle", 12, "an event with a draw begins before the record of the draw has been public for long enough",
	},
	DroppedCountersStay: {
		"dropped-counters-stay", 13, "a regional goes on with its counters of a room that an edge has dropped",
	},
	DroppedLoanStays: {
		"dropped-loan-stays", 13, "global goes on with its counters of a room that a data centre has dropped",
	},
	RoundTakesNewcomers: {
		"round-takes-newcomers", 12, "who comes during a round takes part in it, so that somebody new each time has more chances than who waits",
	},
	RoundsAlike:        {"rounds-alike", 12, "every round of a room is drawn alike, so that who was last stays last"},
	CallForgotten:      {"call-forgotten", 12, "who was called by a round enters no more once it is over"},
	ReleaseUnmarked:    {"release-unmarked", 11, "a release is lent before it is marked in the store"},
	ReleaseMarkedTwice: {"release-marked-twice", 11, "a new coordinator lends a release that another one marked"},
	PassesBackTwice: {
		"passes-back-twice", 11, "passes that come back are lent again with every report that tells of them",
	},
	PassesOfThePredecessor: {
		"passes-of-the-predecessor", 11, "a new aggregator is lent again what its predecessor was lent",
	},
	PassRecycles:     {"pass-recycles", 11, "a pass lets in more than one person"},
	PassOfOldRelease: {"pass-of-old-release", 11, "passes of an earlier release are used as those of the newest"},
}

// Variable is the environment variable that selects a mutant, in builds that have them.
const Variable = "VESTIBULE_MUTANT"

// All returns the mutants in the order of their rules.
func All() []Mutant {
	out := make([]Mutant, 0, count-1)
	for id, m := range list {
		if ID(id) != None {
			out = append(out, Mutant{ID(id), m.name, m.rule, m.says})
		}
	}
	return out
}

// String returns the mutant's name.
func (id ID) String() string {
	if id >= count || id == None {
		return "none"
	}
	return list[id].name
}
