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

var list = [count]Mutant{
	NoPermit:         {Name: "no-permit", Rule: 1, Says: "an edge admits without a permit of T in hand"},
	NoRatePermit:     {Name: "no-rate-permit", Rule: 1, Says: "an edge admits without a permit of R in hand"},
	ChargeLate:       {Name: "charge-late", Rule: 1, Says: "an admission is charged with the next report, after its answer"},
	LeaseForever:     {Name: "lease-forever", Rule: 1, Says: "an edge goes on under a lease that has ended"},
	LeaseFromReceipt: {Name: "lease-from-receipt", Rule: 1, Says: "an edge counts its lease from the arrival of the answer"},
	ShortWindow:      {Name: "short-window", Rule: 1, Says: "a used right of R is free again after 50 s"},

	NoRenewalCeiling: {Name: "no-renewal-ceiling", Rule: 2, Says: "an edge renews as often as it likes without a word"},

	NothingReserved:       {Name: "nothing-reserved", Rule: 3, Says: "nothing is reserved for an edge whose lease has lapsed"},
	NoRateReserved:        {Name: "no-rate-reserved", Rule: 3, Says: "permits of R of an edge whose lease has lapsed are lent again at once"},
	RateAgesLong:          {Name: "rate-ages-long", Rule: 3, Says: "a permit of R comes back from an edge before it comes free there, after a takeover"},
	NoRateReuse:           {Name: "no-rate-reuse", Rule: 3, Says: "a permit of R that came free before the lease of a silent edge ended is not used again there"},
	LateFinalWord:         {Name: "late-final-word", Rule: 3, Says: "a final report is the truth however late it arrives"},
	SnapshotUnbounded:     {Name: "snapshot-unbounded", Rule: 3, Says: "an edge stamps beyond the ceilings of the snapshot in its data folder"},
	CeilingFree:           {Name: "ceiling-free", Rule: 3, Says: "the last report of a killed edge does not count what it may have stamped since its snapshot"},
	VoidSettles:           {Name: "void-settles", Rule: 3, Says: "an edge ignores its ceilings before the regional knows that its data folder is void"},
	OlderSnapshotSettles:  {Name: "older-snapshot-settles", Rule: 3, Says: "a data folder with an older snapshot than the edge reported settles it"},
	BackupSettles:         {Name: "backup-settles", Rule: 3, Says: "a snapshot that was restored from a backup settles an edge"},
	RosterForgetsReserved: {Name: "roster-forgets-reserved", Rule: 3, Says: "the next aggregator does not learn what was reserved"},

	AgeByClock:           {Name: "age-by-clock", Rule: 4, Says: "a second is freed by the clock, whoever has not reported past it"},
	ClockBehindWatermark: {Name: "clock-behind-watermark", Rule: 4, Says: "an edge's clock may read less than the watermark it was told"},
	NoJudgeMargin:        {Name: "no-judge-margin", Rule: 4, Says: "an edge that nobody waits for judges sessions by its clock as it stands"},
	NegativesDropped:     {Name: "negatives-dropped", Rule: 4, Says: "a second that counts less than none is clamped when it is freed"},
	NegativesInherited:   {Name: "negatives-inherited", Rule: 4, Says: "a new aggregator subtracts tickets renewed away whose stamps its predecessor has freed"},
	DoublesWithoutBase:   {Name: "doubles-without-base", Rule: 4, Says: "what led up to the first stamping known is cancelled as a double"},
	TimeOnTrust:          {Name: "time-on-trust", Rule: 4, Says: "a coordinator believes the time of a data centre that is unsure of it"},
	TimeOfOtherBoot:      {Name: "time-of-other-boot", Rule: 4, Says: "a process believes a stored time of another start of its machine"},
	RecordNotAged:        {Name: "record-not-aged", Rule: 4, Says: "a stored time is as exact as on the day it was stored"},
	NegativeRoundsLater:  {Name: "negative-rounds-later", Rule: 4, Says: "on a coarser grid a ticket renewed away is subtracted for longer"},

	NoHold:            {Name: "no-hold", Rule: 5, Says: "edges that a new aggregator awaits hold up nothing"},
	LostIsFree:        {Name: "lost-is-free", Rule: 5, Says: "an edge that a new aggregator awaited in vain holds up nothing any more"},
	LostIsStill:       {Name: "lost-is-still", Rule: 5, Says: "an edge that a new aggregator awaited in vain is taken to have stopped renewing, under serve too"},
	LifeForgotten:     {Name: "life-forgotten", Rule: 5, Says: "a new aggregator knows only the session_duration that is in force"},
	NoPin:             {Name: "no-pin", Rule: 5, Says: "under serve the sessions of a silent edge age"},
	PredecessorsAge:   {Name: "predecessors-age", Rule: 5, Says: "under serve a silent edge renews no sessions that the process before it stamped"},
	TwinSucceeds:      {Name: "twin-succeeds", Rule: 5, Says: "any newer process of an edge's name has succeeded it"},
	CopyProves:        {Name: "copy-proves", Rule: 5, Says: "a copy of a data folder proves what the folder does"},
	BeliedEnded:       {Name: "belied-ended", Rule: 5, Says: "an edge that is heard after another one told that it has ended is taken to have ended all the same"},
	LateWordUncounted: {Name: "late-word-uncounted", Rule: 5, Says: "what an edge tells of that was given up and is alive counts nowhere until it is renewed"},
	ForgetTheLiving:   {Name: "forget-the-living", Rule: 5, Says: "an operator can declare an edge ended that is heard"},
	LossUnmetered:     {Name: "loss-unmetered", Rule: 5, Says: "what an edge may go on renewing that was declared lost after lost_after is told nowhere"},
	ForgottenIsFree:   {Name: "forgotten-is-free", Rule: 5, Says: "what an edge held that an operator declared ended is free at once"},
	StampsAdrift:      {Name: "stamps-adrift", Rule: 5, Says: "an edge that is unsure of the time stamps by its clock as it stands"},
	TimelessUnpin:     {Name: "timeless-unpin", Rule: 5, Says: "what a silent edge that has ended may have renewed is waited for by an aggregator that does not know the time"},
	IsolationIsDeath:  {Name: "isolation-is-death", Rule: 5, Says: "silence of all starts the clock of lost_after"},
	LateWordOfTheDead: {Name: "late-word-of-the-dead", Rule: 5, Says: "what was reserved for a process that ended is forgotten when it is given up"},
	RosterForgotten:   {Name: "roster-forgotten", Rule: 5, Says: "a new aggregator awaits no edge of its predecessor"},
	EmptyStoreIsNew:   {Name: "empty-store-is-new", Rule: 5, Says: "a store that lost its memory counts as a new data centre"},
	TornIsWhole:       {Name: "torn-is-whole", Rule: 5, Says: "promises of which a section was lost are taken for all there were"},
	WaitForgotten:     {Name: "wait-forgotten", Rule: 5, Says: "every new aggregator begins to wait for silent edges anew"},
	OwnMemoryTrusted:  {Name: "own-memory-trusted", Rule: 5, Says: "over an empty store an aggregator takes what it stored last for all there was, whoever led since"},
	RivalUnseen:       {Name: "rival-unseen", Rule: 5, Says: "over an empty store an aggregator goes by its own memory although it saw somebody else lead since"},
	GoneForgotten:     {Name: "gone-forgotten", Rule: 5, Says: "edges that are gone for good are struck from the roster with what they left"},

	CapRenews:       {Name: "cap-renews", Rule: 6, Says: "under cap an isolated edge renews"},
	NoRegionalLease: {Name: "no-regional-lease", Rule: 6, Says: "under cap a data centre goes on when global's lease has ended"},
	ReclaimEarly:    {Name: "reclaim-early", Rule: 6, Says: "global reclaims when the data centre's lease has ended, whatever is still valid"},
	ResumeUncovered: {Name: "resume-uncovered", Rule: 6, Says: "under cap stamping resumes before edges have given back what was voided"},

	RenewForeign:         {Name: "renew-foreign", Rule: 7, Says: "an edge renews tickets of other data centres"},
	MoveWithoutPermit:    {Name: "move-without-permit", Rule: 7, Says: "a session that moves to another data centre takes no permit there"},
	EndBeforeKnown:       {Name: "end-before-known", Rule: 7, Says: "the old home forgets a session before its edges know not to renew it"},
	LeftUncleared:        {Name: "left-uncleared", Rule: 7, Says: "the slot of who left is free before other data centres refuse the ticket"},
	OlderTicketForgotten: {Name: "older-ticket-forgotten", Rule: 7, Says: "the slot of who moved and left is free while the ticket from before the move is valid"},
	LostMovesForgiven:    {Name: "lost-moves-forgiven", Rule: 7, Says: "the permit of a session that left is free although moves that were not reported may have renewed it"},

	UnknownEndAsShown: {Name: "unknown-end-as-shown", Rule: 7, Says: "the slot of who left, of whose stampings nobody told, is free while newer tickets of the session are valid"},

	NoHandshake:          {Name: "no-handshake", Rule: 8, Says: "an aggregator adopts edges that have not promised to follow it"},
	EdgeFollowsAnybody:   {Name: "edge-follows-anybody", Rule: 8, Says: "an edge acts on grants of aggregators that were replaced"},
	CentreFollowsAnybody: {Name: "centre-follows-anybody", Rule: 8, Says: "a data centre acts on grants of coordinators that were replaced"},
	NoFencing:            {Name: "no-fencing", Rule: 8, Says: "no term is looked at anywhere"},
	PromiseUnsaved:       {Name: "promise-unsaved", Rule: 8, Says: "a data centre acts on a promise that is not stored"},
	StoreNotFencing:      {Name: "store-not-fencing", Rule: 8, Says: "the store takes writes of an owner that was replaced"},
	LeaseBeforeRoster:    {Name: "lease-before-roster", Rule: 8, Says: "an edge gets its lease before the roster that names it is stored"},
	WaitKept:             {Name: "wait-kept", Rule: 8, Says: "an edge that has a lease again stays on the roster as one whose wait is over"},
	NoRosterOnRevival:    {Name: "no-roster-on-revival", Rule: 8, Says: "an edge that comes back stays dead on the roster"},
	LeaseEpochIgnored:    {Name: "lease-epoch-ignored", Rule: 8, Says: "an edge acts on grants of a lease epoch that is over"},
	EndOfOldLeaseEpoch:   {Name: "end-of-old-lease-epoch", Rule: 8, Says: "the end of an older lease epoch is taken for that of the newer one"},
	ZombieHeard:          {Name: "zombie-heard", Rule: 8, Says: "global hears aggregators that were replaced"},
	VoidAgain:            {Name: "void-again", Rule: 8, Says: "every grant of a newer generation voids the books again"},

	FreeIsLimit:         {Name: "free-is-limit", Rule: 9, Says: "a new coordinator takes for free whatever it does not know to be lent"},
	AdoptWithoutPromise: {Name: "adopt-without-promise", Rule: 9, Says: "a coordinator adopts books that another one may still raise"},
	ReconstructedUsed:   {Name: "reconstructed-used", Rule: 9, Says: "books that were only reckoned are used at once"},
	BoundForgotten:      {Name: "bound-forgotten", Rule: 9, Says: "a new coordinator does not learn that more may be lent than a limit, lowered since, allows"},
	BoundUnsaved:        {Name: "bound-unsaved", Rule: 9, Says: "a new regional does not know the bound that its predecessor knew"},
	DebtOnCredit:        {Name: "debt-on-credit", Rule: 9, Says: "visitors are called by idle permits that are to pay a debt"},
	AloneForgets:        {Name: "alone-forgets", Rule: 9, Says: "a data centre that is cut off uses all that it holds, although it heard of a lowered limit"},
	OldListOwesNothing:  {Name: "old-list-owes-nothing", Rule: 9, Says: "a lowered limit binds nobody while the coordinator has an older list of data centres"},
	LateAnswerIsLoss:    {Name: "late-answer-is-loss", Rule: 9, Says: "a late answer that asks for the promise is taken to say that global has no ledger"},
	FloorReturned:       {Name: "floor-returned", Rule: 9, Says: "permits are returned although a successor may use them by a stored floor"},
	FloorsForever:       {Name: "floors-forever", Rule: 9, Says: "a stored floor is used although global may have lent the permits to others since"},
	FloorsOfTheLost:     {Name: "floors-of-the-lost", Rule: 9, Says: "a floor is used although the store has lost a part of its data"},
	SpareTwice:          {Name: "spare-twice", Rule: 9, Says: "what came back is lent more than once while books are missing"},
	BlankBelieved:       {Name: "blank-believed", Rule: 9, Says: "a data centre without books is taken to hold nothing"},

	OldListLeads:      {Name: "old-list-leads", Rule: 9, Says: "a coordinator lends by a list of data centres that is older than one it was told of"},
	UnlistedIgnored:   {Name: "unlisted-ignored", Rule: 9, Says: "what a data centre that nobody listed holds is not counted"},
	NewcomerLentEarly: {Name: "newcomer-lent-early", Rule: 9, Says: "a data centre that was added is lent to before the others know of it"},
	CopiesMerged:      {Name: "copies-merged", Rule: 9, Says: "a copy of a data centre is taken for its successor"},
	EnrollingLent:     {Name: "enrolling-lent", Rule: 9, Says: "a member gets permits before its cluster ID is in the list"},
	IdentityUnsaved:   {Name: "identity-unsaved", Rule: 9, Says: "a data centre speaks before its cluster ID is stored"},
	EdgesNotAsked:     {Name: "edges-not-asked", Rule: 9, Says: "an aggregator that finds the store lost does not ask its edges for the cluster ID"},
	CopyConfirmed:     {Name: "copy-confirmed", Rule: 9, Says: "permits that a copy reconstructs are used there"},
	CopyOwns:          {Name: "copy-owns", Rule: 4, Says: "an edge of a copy treats sessions of the listed data centre as its own"},
	ForcedForgotten:   {Name: "forced-forgotten", Rule: 9, Says: "a new coordinator does not wait for a data centre that was removed by force and may hold permits"},
	DrainForgets:      {Name: "drain-forgets", Rule: 9, Says: "a data centre that drains leaves the list while it holds permits"},
	DrainedLent:       {Name: "drained-lent", Rule: 9, Says: "a data centre that has drained is lent permits until the list without it is known"},
	BootstrapInsists:  {Name: "bootstrap-insists", Rule: 9, Says: "a fleet or data centre that was said to be new is taken for new whatever data centres and edges tell"},

	BadCookieAdmits:       {Name: "bad-cookie-admits", Rule: 10, Says: "a cookie that does not open is a pass"},
	PanicPasses:           {Name: "panic-passes", Rule: 10, Says: "a request on which the edge panics goes to the origin"},
	FrontTakesFirst:       {Name: "front-takes-first", Rule: 10, Says: "of two lines that tell the edge which request a front asks about, the first is believed"},
	FrontWaitsAsItIs:      {Name: "front-waits-as-it-is", Rule: 10, Says: "a waiting page with status 200 is told to a front as it is, which takes it for an admission"},
	AnyRoomsTicket:        {Name: "any-rooms-ticket", Rule: 10, Says: "a ticket opens in every room"},
	EpochIgnored:          {Name: "epoch-ignored", Rule: 10, Says: "tickets of an earlier epoch are good"},
	NeverBehind:           {Name: "never-behind", Rule: 10, Says: "an edge that was cut off takes itself to know every key"},
	UnknownKeyOverwritten: {Name: "unknown-key-overwritten", Rule: 10, Says: "a ticket under a key that an edge has not heard of is none, and its visitor gets another"},
	ReplayCounts:          {Name: "replay-counts", Rule: 10, Says: "a ticket that was away counts as somebody who waits at its first touch"},
	PlaceNotMoved:         {Name: "place-not-moved", Rule: 10, Says: "who is given another place stays counted under the old one too"},
	CopyRenews:            {Name: "copy-renews", Rule: 10, Says: "a copy of a session's ticket is renewed like any"},
	NetworkCountsAny:      {Name: "network-counts-any", Rule: 10, Says: "one network adds any number of people to those who wait"},
	ReplacedForgiven:      {Name: "replaced-forgiven", Rule: 10, Says: "a replaced version of a ticket is no sign of a copy"},
	AsideEnters:           {Name: "aside-enters", Rule: 10, Says: "a picture or a robot's file takes a slot at its first request"},
	PreflightPasses:       {Name: "preflight-passes", Rule: 10, Says: "a preflight that nobody admitted goes to the site as it came, and the site's answer to the visitor"},
	RuleOneReading:        {Name: "rule-one-reading", Rule: 10, Says: "a rule lets past what it matches as the path stands, however sites read it"},
	BindingIgnored:        {Name: "binding-ignored", Rule: 10, Says: "a session's ticket is good in any network, whatever the room says"},
	EdgesFollowAlone:      {Name: "edges-follow-alone", Rule: 10, Says: "each edge follows a line of copies of its own"},

	ShutAdmits:       {Name: "shut-admits", Rule: 1, Says: "an edge admits to a room to which an operator lets nobody in"},
	RejectQueues:     {Name: "reject-queues", Rule: 10, Says: "a room that rejects gives places in a line"},
	RenewalStays:     {Name: "renewal-stays", Rule: 1, Says: "sessions are renewed where their renewal is switched off"},
	PassthroughStays: {Name: "passthrough-stays", Rule: 1, Says: "no limit binds once a room was passthrough, whatever its method is now"},
	ControlsForever:  {Name: "controls-forever", Rule: 1, Says: "a limit for now goes on after its end"},

	PrequeueAdmits:         {Name: "prequeue-admits", Rule: 1, Says: "an edge admits while people gather for an event"},
	PrequeueByOwnClock:     {Name: "prequeue-by-own-clock", Rule: 1, Says: "an edge opens at the start of an event by its clock as it stands"},
	EventEarly:             {Name: "event-early", Rule: 1, Says: "limits of an event that are higher are in force before it has certainly begun, and lower ones once it has"},
	EventsOverlap:          {Name: "events-overlap", Rule: 1, Says: "events of a room may overlap"},
	SecretMadeTwice:        {Name: "secret-made-twice", Rule: 12, Says: "a leader makes another secret of a draw where there is one"},
	DrawLateJoiner:         {Name: "draw-late-joiner", Rule: 12, Says: "who joined when entries had closed takes part in the draw"},
	DrawIgnored:            {Name: "draw-ignored", Rule: 12, Says: "who was drawn goes on standing where they joined"},
	DrawBeforeSettle:       {Name: "draw-before-settle", Rule: 12, Says: "an event with a draw begins before the record of the draw has been public for long enough"},
	DroppedCountersStay:    {Name: "dropped-counters-stay", Rule: 13, Says: "a regional goes on with its counters of a room that an edge has dropped"},
	DroppedLoanStays:       {Name: "dropped-loan-stays", Rule: 13, Says: "global goes on with its counters of a room that a data centre has dropped"},
	RoundTakesNewcomers:    {Name: "round-takes-newcomers", Rule: 12, Says: "who comes during a round takes part in it, so that somebody new each time has more chances than who waits"},
	RoundsAlike:            {Name: "rounds-alike", Rule: 12, Says: "every round of a room is drawn alike, so that who was last stays last"},
	CallForgotten:          {Name: "call-forgotten", Rule: 12, Says: "who was called by a round enters no more once it is over"},
	ReleaseUnmarked:        {Name: "release-unmarked", Rule: 11, Says: "a release is lent before it is marked in the store"},
	ReleaseMarkedTwice:     {Name: "release-marked-twice", Rule: 11, Says: "a new coordinator lends a release that another one marked"},
	PassesBackTwice:        {Name: "passes-back-twice", Rule: 11, Says: "passes that come back are lent again with every report that tells of them"},
	PassesOfThePredecessor: {Name: "passes-of-the-predecessor", Rule: 11, Says: "a new aggregator is lent again what its predecessor was lent"},
	PassRecycles:           {Name: "pass-recycles", Rule: 11, Says: "a pass lets in more than one person"},
	PassOfOldRelease:       {Name: "pass-of-old-release", Rule: 11, Says: "passes of an earlier release are used as those of the newest"},
}

// Variable is the environment variable that selects a mutant, in builds that have them.
const Variable = "VESTIBULE_MUTANT"

// All returns the mutants in the order of their rules.
func All() []Mutant {
	out := make([]Mutant, 0, count-1)
	for id, m := range list {
		if ID(id) != None {
			m.ID = ID(id)
			out = append(out, m)
		}
	}
	return out
}

// String returns the mutant's name.
func (id ID) String() string {
	if id >= count || id == None {
		return "none"
	}
	return list[id].Name
}
