package history

// CentreColumns are the numbers of a data centre: gauges as of the end of a step, and what happened in the step.
var CentreColumns = []string{"waiting", "inside", "held", "idle", "arrived", "admitted"}

// CentreRows returns the numbers of each data centre at the ends of rows, one list for each of CentreColumns. points
// are those that the rows were made from.
func CentreRows(points []Point, rows []Row, step int64) map[string][][]float64 {
	out := map[string][][]float64{}
	var p, since *Point
	points = Rollup(points, step)
	for i, r := range rows {
		since = p
		for len(points) > 0 && points[0].At <= r.At {
			if p = &points[0]; p.At < r.At {
				since = p
			}
			points = points[1:]
		}
		for _, c := range p.centresOrNone() {
			lists := out[c.Name]
			if lists == nil {
				lists = make([][]float64, len(CentreColumns))
				for f := range lists {
					lists[f] = make([]float64, len(rows))
				}
				out[c.Name] = lists
			}
			for f := range centreGauges {
				lists[f][i] = float64(c.Values[f])
			}
			if since == nil || p.At != r.At {
				continue // nothing new
			}
			grown := func(f int) float64 {
				now, was := c.Values[f], since.centre(c.Name, f)
				if now < was {
					return float64(now) // under a new aggregator, which counts from 0
				}
				return float64(now - was)
			}
			lists[centreGauges][i] = grown(CentreJoined) + grown(CentreAdmitted) - grown(CentreEntered)
			lists[centreGauges+1][i] = grown(CentreAdmitted)
		}
	}
	return out
}

func (p *Point) centresOrNone() []Centre {
	if p == nil {
		return nil
	}
	return p.Centres
}
