package control

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"vestibule/internal/global/control/api"
)

// request is the request of an operation.
type request struct {
	*http.Request
	w    http.ResponseWriter
	turn *Turn
	body json.RawMessage // nil for none
}

// room returns the id of the room in the path.
func (q *request) room() string { return q.PathValue("waiting_room_id") }

// event returns the id of the event in the path.
func (q *request) event() string { return q.PathValue("event_id") }

// match returns the refusal of a request that expects another revision of an object than the current one.
func (q *request) match(revision uint64, what string) error {
	wanted := q.Header.Get("If-Match")
	if wanted == "" || wanted == "*" || wanted == etag(revision) {
		return nil
	}
	return refusef(http.StatusPreconditionFailed, codeChanged,
		"%s has revision %s, and the request expects %s: somebody changed it: read it again", what, etag(revision),
		short(wanted))
}

// etag returns the entity tag of a revision.
func etag(revision uint64) string { return strconv.Quote(strconv.FormatUint(revision, 10)) }

// read reads the body: one JSON value or none, within the bounds of the operation.
func (q *request) read(b *bodyBounds) error {
	data, err := q.take(b.bytes)
	if err != nil {
		return err
	}
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return nil
	}
	if err := b.Check(data); err != nil {
		return badBody(err)
	}
	if !json.Valid(data) {
		return badBody(at(data, json.Unmarshal(data, new(json.RawMessage))))
	}
	q.body = data
	return nil
}

// take returns the bytes of the body, at most so many. Those of a large one wait for their turn.
func (q *request) take(most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(q.Body, smallBody+1))
	if err != nil || len(data) <= smallBody {
		return data, badBody(err)
	}
	if most > smallBody {
		if err := q.turn.large(q.Context()); err != nil {
			return nil, err
		}
		_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(largeWithin)) // none for a body in memory
		var all bytes.Buffer
		all.Grow(int(max(0, min(q.ContentLength, most))) + bytes.MinRead)
		all.Write(data)
		_, err := all.ReadFrom(io.LimitReader(q.Body, most+1-int64(len(data))))
		if err != nil || int64(all.Len()) <= most {
			return all.Bytes(), badBody(err)
		}
	}
	// A client may read the answer only once it has sent the body.
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(q.w, q.Body, maxApply)); err != nil {
		return nil, badBody(err)
	}
	return nil, badBody(&http.MaxBytesError{Limit: most})
}

// empty returns the refusal of a request that has a body with fields, for operations that take none.
func (q *request) empty() error {
	var f faults
	if !null(q.body) {
		f.object("", q.body)
	}
	return f.err()
}

// listPage is a result that is one page of a list.
type listPage struct {
	result any
	info   api.ResultInfo
}

// tagged is a result that is a room or a part of it, at the room's revision.
type tagged struct {
	result   any
	revision uint64 // 0 for none
	notes    []api.Note
}

// dated is a result of which something is old.
type dated struct {
	result any
	old    old
}

// complete returns a whole list as its only page.
func complete[T any](all []T) listPage {
	n := len(all)
	return listPage{all, api.ResultInfo{Page: 1, PerPage: n, Count: n, TotalCount: n, TotalPages: 1}}
}

const (
	perPage    = 100
	maxPerPage = 1000
)

// number reads a number of the query. The default also stands for a faulty one.
func (q *request) number(f *faults, name string, byDefault, least, most int) int {
	values := q.URL.Query()
	if !values.Has(name) {
		return byDefault
	}
	n, err := strconv.Atoi(values.Get(name))
	if err != nil || n < least || n > most {
		f.add("/"+name, "%s must be a number from %d to %d, got %q", name, least, most, short(values.Get(name)))
		return byDefault
	}
	return n
}

// page returns the range of total entries on the requested page: empty past the last page.
func (q *request) page(total int) (from, to int, info api.ResultInfo, err error) {
	var f faults
	const most = 1 << 31
	info = api.ResultInfo{
		Page: q.number(&f, "page", 1, 1, most), PerPage: q.number(&f, "per_page", perPage, 1, maxPerPage), TotalCount: total,
	}
	if f.n > 0 {
		return 0, 0, info, f.err()
	}
	info.TotalPages = (total + info.PerPage - 1) / info.PerPage
	from = total
	if info.Page <= info.TotalPages {
		from = (info.Page - 1) * info.PerPage
	}
	to = min(total, from+info.PerPage)
	info.Count = to - from
	return from, to, info, nil
}

// pageOf shows the requested page of a list.
func pageOf[T, S any](q *request, all []T, show func(*T) (S, error)) (listPage, error) {
	from, to, info, err := q.page(len(all))
	if err != nil {
		return listPage{}, err
	}
	out := []S{}
	for i := range all[from:to] {
		shown, err := show(&all[from+i])
		if err != nil {
			return listPage{}, err
		}
		out = append(out, shown)
	}
	return listPage{out, info}, nil
}

// csvTable is a result that is written as it is.
type csvTable []byte
