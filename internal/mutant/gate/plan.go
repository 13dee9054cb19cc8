package main

import "vestibule/internal/mutant"

// killer is what has to notice that a rule is missing.
type killer struct {
	tests  string // packages and names of tests, or how the names of several begin
	target string // name of the simulated worlds; "" for none
}

// plan says for every mutant what kills it: always a named test, and a
// simulated world wherever chance leads there within 64 seeds.
var plan = map[mutant.ID]killer{
	mutant.NoRight:          {"slots.TestRule1", "expiry"},
	mutant.NoRateRight:      {"slots.TestRule1", "guests"},
	mutant.ChargeLate:       {"slots.TestRule1", "expiry"},
	mutant.LeaseForever:     {"slots.TestRule1", "expiry"},
	mutant.LeaseFromReceipt: {"slots.TestRule1", ""},
	mutant.ShortWindow:      {"slots.TestRule1", "cutoff"},

	mutant.NoRenewalCeiling: {"slots.TestRule2", "expiry"},

	mutant.NothingPresumed:       {"slots.TestRule3", "expiry"},
	mutant.NoRatePresumed:        {"slots.TestRule3", "expiry"},
	mutant.NoRateReuse:           {"slots.TestRule3", ""},
	mutant.RateAgesLong:          {"slots.TestRule3", ""},
	mutant.LateFinalWord:         {"slots.TestRule3", ""},
	mutant.RosterForgetsPresumed: {"slots.TestRule3", "takeovers"},

	mutant.AgeByClock:           {"slots.TestRule4", "expiry"},
	mutant.ClockBehindWatermark: {"admission.TestFleetTimeIsNeverBehindTheWatermark", ""},
	mutant.NoJudgeMargin:        {"admission.TestASessionEndsEarlierWhereNobodyWaitsForThisClock", ""},
	mutant.NegativesDropped:     {"slots.TestRule4", "guests"},
	mutant.NegativesInherited:   {"slots.TestRule4APredecessor", ""},
	mutant.DoublesWithoutBase:   {"slots.TestRule4", "guests"},
	mutant.TimeOnTrust:          {"slots.TestATimeThatNobodyIsSureOf", ""},

	mutant.NoHold:            {"slots.TestRule5", "takeovers"},
	mutant.LostIsFree:        {"slots.TestRule5", "takeovers"},
	mutant.LostIsStill:       {"slots.TestRule5", ""},
	mutant.LifeForgotten:     {"slots.TestRule5", ""},
	mutant.NoPin:             {"slots.TestRule5", "serve"},
	mutant.PredecessorsAge:   {"slots.TestRule5", ""},
	mutant.TwinSucceeds:      {"slots.TestRule5", "twins"},
	mutant.CopyProves:        {"slots.TestRule5 node.TestACopiedFolderProvesNothing", "twins"},
	mutant.BeliedEnded:       {"slots.TestRule5", ""},
	mutant.LateWordUncounted: {"slots.TestRule5", ""},
	mutant.ForgetTheLiving:   {"slots.TestRule5", ""},
	mutant.ForgetUnmetered:   {"slots.TestRule5", ""},
	mutant.ForgottenIsFree:   {"slots.TestRule5", "twins"},
	mutant.StampsAdrift:      {"slots.TestRule5", ""},
	mutant.TimelessUnpin:     {"slots.TestRule5", ""},
	mutant.IsolationIsDeath:  {"slots.TestRule5", ""},
	mutant.LateWordOfTheDead: {"slots.TestRule5", "serve"},
	mutant.RosterForgotten:   {"slots.TestRule5", "takeovers"},
	mutant.EmptyStoreIsNew:   {"slots.TestRule5", ""},
	mutant.TornIsWhole:       {"natsbus.TestLargePromisesLieInSections", "stores"},
	mutant.WaitForgotten:     {"slots.TestWaitsGoOnAcrossTakeovers", ""},
	mutant.OwnMemoryTrusted:  {"slots.TestOwnMemoryOverAnEmptyStore", "memory"},
	mutant.RivalUnseen:       {"natsbus.TestWhoLedBetweenIsTold", ""},
	mutant.GoneForgotten:     {"slots.TestGoneEdgesAreSummed", "takeovers"},

	mutant.NegativeRoundsLater: {"slots.TestACoarserGridNeverCountsLess", ""},

	mutant.CapRenews:       {"slots.TestRule6", "expiry"},
	mutant.NoRegionalLease: {"slots.TestRule6", "cutoff"},
	mutant.ReclaimEarly:    {"slots.TestRule6", "cutoff"},
	mutant.ResumeUncovered: {"slots.TestRule6", ""},

	mutant.RenewForeign:         {"slots.TestRule7Away", "guests"},
	mutant.MoveWithoutRight:     {"slots.TestRule7Moves", ""},
	mutant.EndBeforeKnown:       {"slots.TestRule7Moves", ""},
	mutant.LeftUncleared:        {"slots.TestRule7Moves", ""},
	mutant.OlderTicketForgotten: {"slots.TestRule7Moves", ""},

	mutant.NoAdoptionHandshake:  {"slots.TestRule8", ""},
	mutant.EdgeFollowsAnybody:   {"slots.TestRule8", ""},
	mutant.CentreFollowsAnybody: {"slots.TestRule8", ""},
	mutant.NoFencing:            {"slots.TestRule8", "takeovers"},
	mutant.PromiseUnsaved:       {"slots.TestRule8", ""},
	mutant.StoreNotFencing:      {"slots.TestRule8 natsbus.TestPromisesReachTheSuccessor", ""},
	mutant.LeaseBeforeRoster:    {"slots.TestRule8", ""},
	mutant.WaitKept:             {"slots.TestWaitsGoOnAcrossTakeovers", ""},
	mutant.NoRosterOnRevival:    {"slots.TestRule8", "guests"},
	mutant.TenureIgnored:        {"admission.TestAGrantThatIsNotForUsOrNotNewChangesNothing", ""},
	mutant.EndOfOldTenure:       {"slots.TestRule8", ""},
	mutant.ZombieHeard:          {"slots.TestRule8", ""},
	mutant.VoidAgain:            {"slots.TestRule8", ""},

	mutant.FreeIsLimit:         {"slots.TestRule9", "takeovers"},
	mutant.AdoptWithoutPromise: {"slots.TestRule8", ""},
	mutant.ReconstructedUsed:   {"slots.TestRule9", ""},
	mutant.SpareTwice:          {"slots.TestRule9", "takeovers"},
	mutant.BlankBelieved:       {"slots.TestRule9", "takeovers"},

	mutant.OldListLeads:        {"slots.TestRule9", ""}, // in worlds, sites that are not recorded keep it from lending
	mutant.UnlistedIgnored:     {"slots.TestRule9", ""},
	mutant.NewcomerLentEarly:   {"slots.TestRule9", ""},
	mutant.SitesMerged:         {"slots.TestRule9", "copies"},
	mutant.UnprovenLent:        {"slots.TestRule9", ""},
	mutant.SiteUnsaved:         {"slots.TestRule9", ""},
	mutant.EdgesSiteless:       {"slots.TestRule9", ""},
	mutant.CopyConfirmed:       {"slots.TestRule9", ""},
	mutant.CopyOwns:            {"admission.TestInACopyNothingOfItsHomeIsItsOwn", "copies"},
	mutant.ForcedForgotten:     {"slots.TestRule9", "forced"},
	mutant.DrainForgets:        {"slots.TestRule9", "fleet"},
	mutant.DrainedLent:         {"slots.TestRule9", ""},
	mutant.UnversionedFollowed: {"slots.TestRule9", "fleet"},
	mutant.BootstrapInsists:    {"slots.TestRule9Bootstrap slots.TestANewDataCentre", ""},

	mutant.ShutAdmits:       {"admission.TestNobodyEntersARoomThatIsShut", ""},
	mutant.RejectQueues:     {"admission.TestARoomThatRejectsGivesNoPlace", ""},
	mutant.RenewalStays:     {"admission.TestARenewalThatIsSwitchedOff", ""},
	mutant.PassthroughStays: {"slots.TestPassthroughLendsWhateverIsWanted", ""},
	mutant.ControlsForever:  {"room.TestControlsEnd", ""},

	mutant.PrequeueAdmits:     {"admission.TestNobodyEntersWhilePeopleGather", "events"},
	mutant.PrequeueByOwnClock: {"admission.TestNobodyEntersWhilePeopleGather", "events"},
	mutant.EventEarly:         {"room.TestTheSmallerLimitWhileAPhaseIsUncertain", "events"},
	mutant.EventsOverlap:      {"room.TestEventsAreRefusedWithTheField", ""},
	mutant.PassthroughLent:    {"slots.TestWhatPassthroughLentIsNotLentAgain", ""},

	mutant.SecretMadeTwice:  {"global.TestLeadersBesideEachOther", ""},
	mutant.DrawBeforeSettle: {"draw.TestWhenADrawOpens room.TestAnEventWithADraw", "draws"},
	mutant.DrawLateJoiner:   {"draw.TestWhoComesLaterIsBehind", "draws"},
	mutant.DrawIgnored:      {"admission.TestWhoWasDrawnStandsThere", "draws"},

	mutant.RoundTakesNewcomers: {"draw.TestWhoComesDuringARoundIsBehind", "random"},
	mutant.RoundsAlike:         {"slots.TestRoundsCallAsManyAsAreWanted", ""},
	mutant.CallForgotten:       {"draw.TestWhoWasCalledStaysCalled admission.TestChanceDecidesWhoIsCalled", ""},

	mutant.ReleaseUnmarked:        {"slots.TestRule11AReleaseIsLent", "releases"},
	mutant.ReleaseMarkedTwice:     {"slots.TestRule11AReleaseIsLent", "releases"},
	mutant.PassesBackTwice:        {"slots.TestRule11WhatComesBack", "releases"},
	mutant.PassesOfThePredecessor: {"slots.TestRule11ASuccessor", "releases"},
	mutant.PassRecycles:           {"admission.TestRule11", "releases"},
	mutant.PassOfOldRelease:       {"admission.TestRule11", "releases"},

	mutant.BadCookieAdmits:       {"edge.TestRule10", ""},
	mutant.PanicPasses:           {"edge.TestAPanicIsOneRequestsAlone", ""},
	mutant.FrontTakesFirst:       {"edge.TestRule10AFront", ""},
	mutant.FrontWaitsAsItIs:      {"edge.TestRule10AFront", ""},
	mutant.AsideEnters:           {"edge.TestRule10WhatIsNoVisit", ""},
	mutant.PreflightPasses:       {"edge.TestRule10WhatIsNoVisit", ""},
	mutant.RuleOneReading:        {"rules.TestEveryReading edge.TestRule10Rules", "rules"},
	mutant.AnyRoomsTicket:        {"edge.TestRule10", ""},
	mutant.EpochIgnored:          {"edge.TestRule10", ""},
	mutant.NeverBehind:           {"ticket.TestWhoMissesAKeyKnowsIt", "keys"},
	mutant.UnknownKeyOverwritten: {"edge.TestRule10", ""},
	mutant.ReplayCounts:          {"admission.TestATicketIsOneVisitorHoweverOftenItIsShown", ""},
	mutant.PlaceNotMoved:         {"admission.TestAPlaceMovesWithItsPerson", ""},
	mutant.CopyRenews:            {"admission.TestCopiesOfATicketAreNotFreeEntries", ""},
	mutant.NetworkCountsAny:      {"edge.TestANetworkAddsSoManyToTheLine", ""},
	mutant.GapsForgiven:          {"sim.TestCopiesOfASessionAtAnyEdge", ""},
	mutant.BindingIgnored:        {"admission.TestASessionIsBoundToItsNetwork", ""},
	mutant.EdgesFollowAlone:      {"sim.TestCopiesAtEdgesOfTheirOwn", ""},
}
