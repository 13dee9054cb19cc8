package control

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
)

// A visitor's session is found by the reference number, in every data centre that answers, and only in the rooms of the
// token.
func TestAVisitorIsFoundByNumber(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+"}")
	f.parts.visitors.nodes = func() api.Fleet {
		return api.Fleet{DataCenters: []api.DataCenter{{Name: "nairobi"}, {Name: "dublin"}, {Name: "lima"}}}
	}
	until := time.Date(2026, 12, 1, 20, 0, 0, 0, time.UTC)
	f.parts.visitors.find = func(_ context.Context, dc, number string) ([]wire.FoundSession, error) {
		switch {
		case dc == "lima":
			return nil, errors.New("away")
		case dc == "dublin" && number == "482-177-301":
			return []wire.FoundSession{
				{Room: "shop", Edge: "edge-1", Until: until},
				{Room: "gone", Edge: "edge-1", Until: until},
			}, nil
		}
		return nil, nil
	}
	const path = "/vestibule/visitors/482-177-301"
	a := f.ask(Viewer, "GET", path, "")
	found, _ := a.field("sessions").([]any)
	silent, _ := a.field("silent").([]any)
	if a.code != 200 || len(found) != 1 || !slices.Equal(silent, []any{"lima"}) {
		t.Fatalf("%+v", a)
	}
	if got, _ := found[0].(map[string]any); got["room"] != "shop" || got["data_center"] != "dublin" ||
		got["edge"] != "edge-1" || got["until"] != "2026-12-01T20:00:00Z" {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"482", "482-177-30x", "4821773012"} {
		if a := f.ask(Viewer, "GET", "/vestibule/visitors/"+bad, ""); a.code != 400 ||
			a.Errors[0].Source.Pointer != "/number" {
			t.Errorf("%s: %+v", bad, a)
		}
	}
	other := Principal{Role: Viewer, Rooms: []string{room.PublicID("other")}}
	var seen api.Visitor
	if err := f.api.Call(t.Context(), other, "192.0.2.1", "GET", path, nil, &seen); err != nil || len(seen.Sessions) != 0 {
		t.Errorf("a token of another room: %+v, %v", seen, err)
	}
}
