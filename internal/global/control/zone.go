package control

import (
	"context"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/jsondoc"
)

// zoneService keeps the settings of the zone for clients of the hosted product. They have no effect.
type zoneService struct {
	clock
	auditor
	docs wire.DocumentStore
}

// zoneDocument has the settings.
const zoneDocument = "zone"

type zoneSettings struct {
	CrawlerBypass bool `json:"search_engine_crawler_bypass"`
}

// read returns the stored settings; without any the defaults.
func (s *zoneService) read(ctx context.Context) (z zoneSettings, revision uint64, err error) {
	stored, revision, err := jsondoc.Read[zoneSettings](ctx, s.docs, zoneDocument)
	if stored != nil {
		z = *stored
	}
	return z, revision, err
}

func (s *zoneService) get(ctx context.Context, _ *request) (any, error) {
	z, _, err := s.read(ctx)
	return z, err
}

func (s *zoneService) put(ctx context.Context, q *request) (any, error) {
	const key = "search_engine_crawler_bypass"
	var f faults
	given := f.object("", q.body, key)
	before, revision, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	after := before
	if v, ok := given[key]; ok || q.Method == "PUT" {
		after.CrawlerBypass, _ = f.flag("/"+key, v)
	}
	if f.n > 0 {
		return nil, f.err()
	}
	out := tagged{result: after}
	if after.CrawlerBypass {
		out.notes = []api.Note{ineffective("/"+key, true)}
	}
	if after == before {
		return out, nil
	}
	put := func() error { return jsondoc.Write(ctx, s.docs, zoneDocument, after, revision) }
	return out, s.audited(ctx, s.now(), "zone", &before, &after, put)
}
