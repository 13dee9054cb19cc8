package members_test

import (
	"encoding/json"
	"testing"

	"vestibule/internal/global/members"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
)

// TestAnAddedDataCentreIsNoCopy: the status of global is from before the change, and lists what reports as unlisted.
func TestAnAddedDataCentreIsNoCopy(t *testing.T) {
	ctx, docs := t.Context(), fakes.NewDocuments()
	put := func(key string, v any) {
		t.Helper()
		data := testkit.Must(json.Marshal(v))(t)
		_, revision, err := docs.Get(ctx, key)
		testkit.NoError(t, err)
		testkit.Must(docs.Put(ctx, key, data, revision))(t)
	}
	put(node.MembersDocument,
		node.Members{Version: 5, List: []node.Member{{Name: "nairobi", State: node.Active, ClusterID: 1}}})
	status := node.MembersStatus{Version: 5, List: []node.CentreState{
		{Name: "dublin", ClusterID: 2, State: "unlisted", Reporting: true},
		{Name: "nairobi", ClusterID: 1, State: "active", Reporting: true},
	}}
	put(node.MembersStatusDocument, status)
	list := &members.List{Docs: docs}
	testkit.NoError(t, list.Add(ctx, "dublin"))
	view := testkit.Must(list.View(ctx))(t)
	if n := len(view.DataCenters); n != 2 || view.DataCenters[1].State != "active" ||
		view.DataCenters[1].CopyClusterId != "" {
		t.Errorf("after the addition: %+v", view.DataCenters)
	}

	// A real copy stays one: global knows the list, and the listed one.
	status.Version, status.List[0].State = uint64(view.Version), "active"
	status.List = append(status.List, node.CentreState{Name: "dublin", ClusterID: 3, State: "unlisted", Reporting: true})
	put(node.MembersStatusDocument, status)
	view = testkit.Must(list.View(ctx))(t)
	if n := len(view.DataCenters); n != 3 || view.DataCenters[2].CopyClusterId == "" {
		t.Errorf("with a copy: %+v", view.DataCenters)
	}
}
