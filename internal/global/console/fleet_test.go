package console_test

import (
	"testing"
	"time"

	"vestibule/internal/global/control/api"
)

// someFleet has two candidates, and a data centre with a lost edge.
func someFleet() api.Fleet {
	bound := 0.004
	ended, soon, later := time.Now().Add(-time.Minute), time.Now().Add(49*time.Hour), time.Now().Add(2401*time.Hour)
	return api.Fleet{
		Leader: "global-1",
		Candidates: []api.Candidate{
			{
				Name: "global-1", Build: "v1.0.3", Leading: true, CertificateEnd: &later, Term: "7", RoomsVersion: 31,
				AsOf: time.Now(),
				Alarms: []string{
					"data centre oslo is listed and has not reported for over a minute: check that its regional runs",
				},
			},
			{Name: "global-2", Build: "v1.0.3", LeaseTroubleSeconds: 3.5, Alarms: []string{}, AsOf: time.Now()},
			{Name: "global-3", Build: "v1.0.3", Alarms: []string{}, AsOf: time.Now().Add(-10 * time.Second)},
		},
		DataCenters: []api.DataCenter{
			{
				Name: "dublin", Build: "v1.0.3", State: "active", HeardSeconds: .3, LeaseSeconds: 4.7, Told: true, Adopted: true,
				ClockBoundSeconds: &bound, Term: "3",
				Permits: 1500, PermitsIdle: 120, RatePermits: 150, RatePermitsIdle: 30, Sessions: 1380, EdgesCount: 3,
				Edges: []api.Edge{
					{Name: "edge-3", State: "lost", HeardSeconds: 130, CertificateEnd: &ended},
					{Name: "edge-1", CertificateEnd: &soon, Build: "v1.0.3", State: "alive", LeaseSeconds: 2},
				},
			},
			{
				Name: "oslo", State: "active", HeardSeconds: 75, EdgesCount: 1,
				Edges: []api.Edge{{Name: "edge-9", State: "unknown", HeardSeconds: 76}},
			},
			{Name: "nairobi", State: "draining", Told: true, Adopted: true, Edges: []api.Edge{}},
			{Name: "lima", State: "active", HeardSeconds: .4, Edges: []api.Edge{}},
		},
		Notifiers: []api.Notifier{
			{
				Name: "notifier-1", AsOf: time.Now(), Subscribed: 1200, Due: 4000, Sent: 3990, Failed: 14, GivenUp: 2,
				LateSeconds: 1.25,
			},
			{Name: "notifier-2", AsOf: time.Now(), LateSeconds: 31},
			{Name: "notifier-3", AsOf: time.Now().Add(-time.Minute)},
		},
	}
}

// The page of the fleet shows each process with its state, and each alarm with the runbook's advice.
func TestTheFleetShowsAlarmsAndWhatToDo(t *testing.T) {
	f := start(t)
	f.play(func() { f.fleet = someFleet() })
	contains(t, f.see("/console/fleet"),
		"data centre oslo is listed and has not reported for over a minute", "Alarm of global-1",
		"global-1 Leading", "global-2 Standby", "global-3 Silent", "refused by the store for 3.5 s",
		"dublin Reporting Sessions 1,380 Session permits 1,500, 120 idle", "±4 ms", "2 edges, 1 alive",
		"edge-3 Lost Heard 2 minutes ago", "Certificates ended", "Certificates 2 days left", "Certificates 100 days left",
		"Certificates none", "and 1 more",
		"oslo Silent", "1 edge, 0 alive", "edge-9 Unknown Heard 76.0 s ago", "nairobi Draining", "lima Permits unknown",
		"Action",
		"notifier-1 Working Visitors to notify 1,200 Due 4,000 Sent 3,990 Failed attempts 14 Given up 2 Longest delay 1.2 s",
		"notifier-2 Late", "notifier-3 Silent")
	f.play(func() { f.fleet = api.Fleet{Candidates: []api.Candidate{}, DataCenters: []api.DataCenter{}} })
	contains(t, f.see("/console/fleet"), "No global leads", "No alarms", "No data centre is known")
}
