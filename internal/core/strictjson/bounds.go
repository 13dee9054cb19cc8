package strictjson

import (
	"encoding/json"
	"fmt"
	"iter"
)

// Bounds bound a document of an operator before anything is computed with it.
type Bounds struct {
	Depth  int // objects and lists inside each other
	Each   int // keys of one object, repeated ones too, or elements of one list
	Values int // of all objects and lists together
	Text   int // bytes of one text or key, as it is written
}

// Check returns which bound a document breaks first, and where. It neither allocates nor checks the syntax otherwise.
func (b Bounds) Check(data []byte) error {
	const deepest = 64
	var values [deepest + 1]int // of the open objects and lists
	depth, all := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := i + 1 + textLen(data[i+1:])
			if end-i-1 > b.Text {
				return fmt.Errorf("it must have no text of more than %d bytes, and has one at byte %d", b.Text, i+1)
			}
			i = end
		case '{', '[':
			if depth++; depth > min(b.Depth, deepest) {
				return fmt.Errorf("it must be at most %d levels deep, and is deeper at byte %d", b.Depth, i+1)
			}
			values[depth] = 1
			all++
		case '}', ']':
			depth = max(0, depth-1)
		case ',':
			all++
			if values[depth]++; values[depth] > b.Each {
				return fmt.Errorf("it must have no object or list of more than %d values, and has one at byte %d", b.Each, i+1)
			}
		}
		if all > b.Values {
			return fmt.Errorf("it must have at most %d values, and has more at byte %d", b.Values, i+1)
		}
	}
	return nil
}

// textLen returns the length of the text at the beginning of data, up to its closing quote.
func textLen(data []byte) int {
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data)
}

// Members returns the keys of a valid JSON object with their values, in order and with repetitions. The values share
// the memory of data. It returns false if data is another value.
func Members(data []byte) (all iter.Seq2[string, json.RawMessage], ok bool) {
	at := skipSpace(data, 0)
	if at == len(data) || data[at] != '{' {
		return nil, false
	}
	return func(yield func(string, json.RawMessage) bool) {
		for i := skipSpace(data, at+1); i < len(data) && data[i] == '"'; {
			end := i + 2 + textLen(data[i+1:])
			var key string
			if end > len(data) || json.Unmarshal(data[i:end], &key) != nil {
				return
			}
			from := skipSpace(data, skipSpace(data, end)+1) // behind the colon
			to := valueEnd(data, from)
			if from >= to || !yield(key, json.RawMessage(data[from:to:to])) {
				return
			}
			if i = skipSpace(data, to); i < len(data) && data[i] == ',' {
				i = skipSpace(data, i+1)
			}
		}
	}, true
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return min(i, len(data))
}

// valueEnd returns where the value that begins at i ends.
func valueEnd(data []byte, i int) int {
	for depth := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = min(len(data)-1, i+1+textLen(data[i+1:])); depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(data)
}
