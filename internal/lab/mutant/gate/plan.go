package main

import "vestibule/internal/lab/mutant"

// killer is the tests that must detect a mutant.
type killer struct {
	tests  string // packages and test names, or prefixes of them
	target string // name of the simulated worlds, or ""
}

// plan names the killers of every mutant: always a named test, and a simulated world if chance finds a fault within
// 64 seeds.
var plan = map[mutant.ID]killer{
	mutant.NoRight:          {"ledger.TestRule1", "expiry"},
	mutant.NoRateRight:      {"ledger.TestRule1", "guests"},
	mutant.ChargeLate:       {"ledger.TestRule1", "expiry"},
	mutant.LeaseForever:     {"ledger.TestRule1", "expiry"},
	mutant.LeaseFromReceipt: {"ledger.TestRule1", ""},
	mutant.ShortWindow:      {"ledger.TestRule1", "cutoff"},

	mutant.NoRenewalCeiling: {"ledger.TestRule2", "expiry"},

	mutant.NothingPresumed:       {"ledger.TestRule3", "expiry"},
	mutant.NoRatePresumed:        {"ledger.TestRule3", "expiry"},
	mutant.NoRateReuse:           {"region.TestRule3", ""},
	mutant.RateAgesLong:          {"region.TestRule3", ""},
	mutant.LateFinalWord:         {"ledger.TestRule3", ""},
	mutant.RosterForgetsPresumed: {"ledger.TestRule3", "takeovers"},

	mutant.AgeByClock:           {"ledger.TestRule4", "expiry"},
	mutant.ClockBehindWatermark: {"admission.TestFleetTimeIsNeverBehindTheWatermark", ""},
	mutant.NoJudgeMargin:        {"admission.TestASessionEndsEarlierWhereNobodyWaitsForThisClock", ""},
	mutant.NegativesDropped:     {"ledger.TestRule4", "guests"},
	mutant.NegativesInherited:   {"region.TestRule4APredecessor", ""},
	mutant.DoublesWithoutBase:   {"region.TestRule4", "guests"},
	mutant.TimeOfOtherBoot:      {"fleettime.TestARecordThatDoesNotTell", "restarts"},
	mutant.RecordNotAged:        {"fleettime.TestARecordedTimeIsAsGoodAsItSays", ""},
	mutant.TimeOnTrust:          {"root.TestATimeThatNobodyIsSureOf", ""},

	mutant.NoHold:            {"ledger.TestRule5", "takeovers"},
	mutant.LostIsFree:        {"ledger.TestRule5", "takeovers"},
	mutant.LostIsStill:       {"ledger.TestRule5", ""},
	mutant.LifeForgotten:     {"ledger.TestRule5", ""},
	mutant.NoPin:             {"ledger.TestRule5", "serve"},
	mutant.PredecessorsAge:   {"ledger.TestRule5", ""},
	mutant.TwinSucceeds:      {"ledger.TestRule5", "twins"},
	mutant.CopyProves:        {"ledger.TestRule5 node.TestACopiedFolderProvesNothing", "twins"},
	mutant.BeliedEnded:       {"ledger.TestRule5", ""},
	mutant.LateWordUncounted: {"ledger.TestRule5", ""},
	mutant.ForgetTheLiving:   {"ledger.TestRule5", ""},
	mutant.ForgetUnmetered:   {"ledger.TestRule5", ""},
	mutant.ForgottenIsFree:   {"ledger.TestRule5", "twins"},
	mutant.StampsAdrift:      {"ledger.TestRule5", ""},
	mutant.TimelessUnpin:     {"ledger.TestRule5", ""},
	mutant.IsolationIsDeath:  {"ledger.TestRule5", ""},
	mutant.LateWordOfTheDead: {"ledger.TestRule5", "serve"},
	mutant.RosterForgotten:   {"ledger.TestRule5", "takeovers"},
	mutant.EmptyStoreIsNew:   {"ledger.TestRule5", ""},
	mutant.TornIsWhole:       {"natsbus.TestLargePromisesLieInSections", "stores"},
	mutant.WaitForgotten:     {"region.TestWaitsGoOnAcrossTakeovers", ""},
	mutant.OwnMemoryTrusted:  {"region.TestOwnMemoryOverAnEmptyStore", "memory"},
	mutant.RivalUnseen:       {"natsbus.TestWhoLedBetweenIsTold", ""},
	mutant.GoneForgotten:     {"region.TestGoneEdgesAreSummed", "takeovers"},

	mutant.NegativeRoundsLater: {"region.TestACoarserGridNeverCountsLess", ""},

	mutant.CapRenews:       {"ledger.TestRule6", "expiry"},
	mutant.NoRegionalLease: {"ledger.TestRule6", "cutoff"},
	mutant.ReclaimEarly:    {"ledger.TestRule6", "cutoff"},
	mutant.ResumeUncovered: {"ledger.TestRule6", ""},

	mutant.RenewForeign:         {"ledger.TestRule7Away", "guests"},
	mutant.MoveWithoutRight:     {"ledger.TestRule7Moves", ""},
	mutant.UnknownEndAsShown:    {"region.TestWhoLeavesAfterATakeover", ""},
	mutant.EndBeforeKnown:       {"ledger.TestRule7Moves", ""},
	mutant.LeftUncleared:        {"ledger.TestRule7Moves", ""},
	mutant.OlderTicketForgotten: {"ledger.TestRule7Moves", ""},

	mutant.NoAdoptionHandshake:  {"ledger.TestRule8", ""},
	mutant.EdgeFollowsAnybody:   {"ledger.TestRule8", ""},
	mutant.CentreFollowsAnybody: {"ledger.TestRule8", ""},
	mutant.NoFencing:            {"ledger.TestRule8", "takeovers"},
	mutant.PromiseUnsaved:       {"ledger.TestRule8", ""},
	mutant.StoreNotFencing:      {"ledger.TestRule8 natsbus.TestPromisesReachTheSuccessor", ""},
	mutant.LeaseBeforeRoster:    {"ledger.TestRule8", ""},
	mutant.WaitKept:             {"region.TestWaitsGoOnAcrossTakeovers", ""},
	mutant.NoRosterOnRevival:    {"ledger.TestRule8", "guests"},
	mutant.TenureIgnored:        {"admission.TestAGrantThatIsNotForUsOrNotNewChangesNothing", ""},
	mutant.EndOfOldTenure:       {"ledger.TestRule8", ""},
	mutant.ZombieHeard:          {"ledger.TestRule8", ""},
	mutant.VoidAgain:            {"ledger.TestRule8", ""},

	mutant.FreeIsLimit:         {"ledger.TestRule9", "takeovers"},
	mutant.AdoptWithoutPromise: {"ledger.TestRule8", ""},
	mutant.ReconstructedUsed:   {"ledger.TestRule9", ""},
	mutant.SpareTwice:          {"ledger.TestRule9", "takeovers"},
	mutant.BlankBelieved:       {"ledger.TestRule9", "takeovers"},

	mutant.OldListLeads:      {"root.TestRule9", ""}, // in worlds, sites that are not recorded keep it from lending
	mutant.UnlistedIgnored:   {"root.TestRule9", ""},
	mutant.NewcomerLentEarly: {"root.TestRule9", ""},
	mutant.SitesMerged:       {"root.TestRule9", "copies"},
	mutant.UnprovenLent:      {"root.TestRule9", ""},
	mutant.SiteUnsaved:       {"region.TestRule9", ""},
	mutant.EdgesSiteless:     {"region.TestRule9", ""},
	mutant.CopyConfirmed:     {"root.TestRule9", ""},
	mutant.CopyOwns:          {"admission.TestInACopyNothingOfItsHomeIsItsOwn", "copies"},
	mutant.ForcedForgotten:   {"root.TestRule9", "forced"},
	mutant.DrainForgets:      {"root.TestRule9", "fleet"},
	mutant.DrainedLent:       {"root.TestRule9", ""},
	mutant.BootstrapInsists:  {"root.TestRule9Bootstrap region.TestANewDataCentre", ""},

	mutant.ShutAdmits:       {"admission.TestNobodyEntersARoomThatIsShut", ""},
	mutant.RejectQueues:     {"admission.TestARoomThatRejectsGivesNoPlace", ""},
	mutant.RenewalStays:     {"admission.TestARenewalThatIsSwitchedOff", ""},
	mutant.PassthroughStays: {"root.TestPassthroughLendsWhateverIsWanted", ""},
	mutant.ControlsForever:  {"room.TestControlsEnd", ""},

	mutant.PrequeueAdmits:     {"admission.TestNobodyEntersWhilePeopleGather", "events"},
	mutant.PrequeueByOwnClock: {"admission.TestNobodyEntersWhilePeopleGather", "events"},
	mutant.EventEarly:         {"room.TestTheSmallerLimitWhileAPhaseIsUncertain", "events"},
	mutant.EventsOverlap:      {"room.TestEventsAreRefusedWithTheField", ""},
	mutant.PassthroughLent:    {"root.TestWhatPassthroughLentIsNotLentAgain", ""},

	mutant.SecretMadeTwice:  {"global.TestLeadersBesideEachOther", ""},
	mutant.DrawBeforeSettle: {"draw.TestWhenADrawOpens room.TestAnEventWithADraw", "draws"},
	mutant.DrawLateJoiner:   {"draw.TestWhoComesLaterIsBehind", "draws"},
	mutant.DrawIgnored:      {"admission.TestWhoWasDrawnStandsThere", "draws"},

	mutant.RoundTakesNewcomers: {"draw.TestWhoComesDuringARoundIsBehind", "random"},
	mutant.RoundsAlike:         {"share.TestRoundsCallAsManyAsAreWanted", ""},
	mutant.CallForgotten:       {"draw.TestWhoWasCalledStaysCalled admission.TestChanceDecidesWhoIsCalled", ""},

	mutant.ReleaseUnmarked:        {"root.TestRule11AReleaseIsLent", "releases"},
	mutant.ReleaseMarkedTwice:     {"root.TestRule11AReleaseIsLent", "releases"},
	mutant.PassesBackTwice:        {"root.TestRule11WhatComesBack", "releases"},
	mutant.PassesOfThePredecessor: {"root.TestRule11ASuccessor", "releases"},
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
