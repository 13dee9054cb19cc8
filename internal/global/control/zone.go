package control

import "context"

// getZone returns the settings of the zone: only the default is supported.
func getZone(context.Context, *request) (any, error) {
	return map[string]bool{"search_engine_crawler_bypass": false}, nil
}

func putZone(ctx context.Context, q *request) (any, error) {
	var f faults
	on, ok := f.flag("/search_engine_crawler_bypass", f.object("", q.body, "search_engine_crawler_bypass")["search_engine_crawler_bypass"])
	if ok && on {
		f.add("/search_engine_crawler_bypass", "search_engine_crawler_bypass is not served yet and must be false")
	}
	if len(f) > 0 {
		return nil, invalid(f)
	}
	return getZone(ctx, q)
}
