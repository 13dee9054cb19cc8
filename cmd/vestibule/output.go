package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

func (c *client) showJSON(result any) error {
	e := json.NewEncoder(c.out)
	e.SetIndent("", "  ")
	return e.Encode(result)
}

// show prints a result as JSON or as the table that rows writes.
func (c *client) show(result any, rows func(row func(cells ...any))) error {
	if c.output == "json" {
		return c.showJSON(result)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, cell := range cells {
			texts[i] = cellText(cell)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	})
	return w.Flush()
}

// showList shows the results of a list: as a table, a row for each below the names of its columns.
func showList[T any](c *client, list []T, columns []any, cells func(*T) []any) error {
	return c.show(list, func(row func(...any)) {
		row(columns...)
		for i := range list {
			row(cells(&list[i])...)
		}
	})
}

// cellText returns a value as a cell shows it. An absent one is a dash. A time is in UTC, and in this machine's zone if
// that is another.
func cellText(v any) string {
	switch v := v.(type) {
	case *time.Time:
		if v != nil {
			return cellText(*v)
		}
	case time.Time:
		text := v.UTC().Format(time.RFC3339)
		if _, offset := v.Local().Zone(); offset != 0 {
			text += v.Local().Format(" (Mon 15:04 MST)")
		}
		return text
	case *int:
		if v != nil {
			return fmt.Sprint(*v)
		}
	default:
		if text := fmt.Sprint(v); text != "" {
			return text
		}
	}
	return "-"
}
