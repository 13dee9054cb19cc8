// Command cmd plays small worlds of the ceilings protocol.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"vestibule/internal/lab/ceilings"
)

func main() {
	worlds := flag.Int("worlds", 10000, "worlds")
	seed := flag.Uint64("seed", 1, "first seed")
	without := flag.String("without", "", "a rule to take out")
	var t ceilings.Trial
	flag.BoolVar(&t.Told, "told", false, "the second form: children are told their ceilings")
	flag.BoolVar(&t.Clocks, "clocks", false, "clocks differ")
	flag.BoolVar(&t.Ends, "ends", false, "sessions end early")
	flag.BoolVar(&t.Rate, "rate", false, "permits of R")
	flag.BoolVar(&t.Serve, "serve", false, "partition_policy serve")
	flag.BoolVar(&t.Gone, "gone", false, "edges are gone for good")
	flag.BoolVar(&t.Restore, "restore", false, "the store comes back older or empty")
	tree := flag.Bool("tree", false, "global above data centres")
	ticks := flag.Int("ticks", 160, "ticks of a world")
	flag.Parse()
	if *without != "" {
		r, err := ceilings.ParseRule(*without)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		t.Without = ceilings.Of(r)
	}
	t.Ticks = ceilings.Time(*ticks)
	begin := time.Now()
	run := ceilings.RunWorlds
	if *tree {
		run = ceilings.RunTrees
	}
	res := run(*seed, *worlds, t)
	fmt.Println(res, time.Since(begin).Round(time.Millisecond))
	if res.Broken > 0 {
		os.Exit(1)
	}
}
