package control

import (
	"context"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/jsondoc"
)

// zoneDocument has the settings.
const zoneDocument = "zone"

type zoneSettings struct {
	CrawlerBypass bool `json:"search_engine_crawler_bypass"`
}

// readZone returns the stored settings; without any the defaults.
func (s *Server) readZone(ctx context.Context) (z zoneSettings, revision uint64, err error) {
	stored, revision, err := jsondoc.Read[zoneSettings](ctx, s.Docs, zoneDocument)
	if stored != nil {
		z = *stored
	}
	return z, revision, err
}

func (s *Server) getZone(ctx context.Context, _ *request) (any, error) {
	z, _, err := s.readZone(ctx)
	return z, err
}

func (s *Server) putZone(ctx context.Context, q *request) (any, error) {
	const key = "search_engine_crawler_bypass"
	var f faults
	given := f.object("", q.body, key)
	before, revision, err := s.readZone(ctx)
	if err != nil {
		return nil, err
	}
	after := before
	if v, ok := given[key]; ok || q.Method == "PUT" {
		after.CrawlerBypass, _ = f.flag("/"+key, v)
	}
	if len(f) > 0 {
		return nil, f.err()
	}
	out := tagged{result: after}
	if after.CrawlerBypass {
		out.notes = []api.Note{ineffective("/"+key, true)}
	}
	if after == before {
		return out, nil
	}
	put := func() error { return jsondoc.Write(ctx, s.Docs, zoneDocument, after, revision) }
	return out, s.audited(ctx, s.now(), "zone", &before, &after, put)
}
