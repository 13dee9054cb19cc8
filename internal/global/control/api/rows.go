package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Rows are the rows of a history, by columns: not a number for unknown. In JSON they are a list for each row, with null
// for unknown.
type Rows [][]float64

// MarshalJSON implements [json.Marshaler].
func (r Rows) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i := 0; len(r) > 0 && i < len(r[0]); i++ {
		for j, column := range r {
			switch {
			case j > 0:
				out = append(out, ',')
			case i > 0:
				out = append(out, "],["...)
			default:
				out = append(out, '[')
			}
			if n := column[i]; math.IsNaN(n) {
				out = append(out, "null"...)
			} else {
				out = strconv.AppendFloat(out, n, 'f', -1, 64)
			}
		}
	}
	if len(out) > 1 {
		out = append(out, ']')
	}
	return append(out, ']'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Rows) UnmarshalJSON(data []byte) error {
	var rows [][]*float64
	if err := json.Unmarshal(data, &rows); err != nil {
		return err
	}
	*r = nil
	for n, row := range rows {
		if n == 0 {
			*r = make(Rows, len(row))
		}
		if len(row) != len(*r) {
			return fmt.Errorf("rows of %d and %d numbers", len(*r), len(row))
		}
		for i, x := range row {
			if x == nil {
				x = &unknown
			}
			(*r)[i] = append((*r)[i], *x)
		}
	}
	return nil
}

var unknown = math.NaN()
