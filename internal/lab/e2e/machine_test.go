package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/allinone"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/sim"
	"vestibule/internal/lab/testkit"
)

var machine = flag.Int("machine", 0, "people who wait in TestMachine; 0: it is skipped (`make machine`)")

const (
	machineRate   = 1200 // admissions per minute
	machineLength = time.Minute
	machineHalf   = 0.5 // of the processors and of the memory: the rest is for the operating system and for bursts
	machineCores  = 2
	machineMemory = 4 << 30
)

// TestMachine measures the processor time and the memory of `vestibule serve` for a third of the people and for all,
// half of them on the event stream and half polling, while R enter in each minute. The head of the line, which asks
// often, is as long in both, so each further person costs the difference: with it the test tells how many people half
// of a machine of two cores and 4 GB lets wait.
func TestMachine(t *testing.T) {
	if *machine == 0 {
		t.Skip("`make machine` runs it")
	}
	t.Log(figures.Machine())
	bin, dir := build(t), t.TempDir()
	rooms := filepath.Join(dir, "rooms.yaml")
	testkit.NoError(t, os.WriteFile(rooms, fmt.Appendf(nil, "rooms: [{name: machine, host: machine.example, "+
		"total_active_users: 10000, new_users_per_minute: %d, session_duration: 5m, origin: %q}]\n", machineRate,
		startSite(t, bin).at["url"]), 0o600))
	addr := testkit.FreeAddr(t)
	serve := start(t, filepath.Join(bin, "vestibule"), "serve", "--rooms", rooms, "--listen", addr, "--control", "127.0.0.1:0",
		"--metrics", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"), "--log-level", "warn")
	areReady(t, serve)
	h := &hall{Info: allinone.Info{Edges: []allinone.EdgeInfo{{URL: "http://" + addr}}}}
	r := &crowdRoom{name: "machine", Crowd: sim.Crowd{Method: room.MethodFIFO}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	var entered atomic.Int64
	begin, people := time.Now(), 0
	come := func(more int) {
		from := people
		people += more
		for i := from; i < people; i++ {
			all.Go(func() {
				pause(ctx, time.Duration(i-from)*10*time.Millisecond)
				for n := 0; ctx.Err() == nil; n++ { // whoever enters makes room for a newcomer
					p := r.comer(h, rand.New(rand.NewPCG(uint64(i), uint64(n))), begin, i%2 == 0)
					from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))}
					p.Client.Transport = &http.Transport{
						MaxIdleConnsPerHost: 2, DisableCompression: true, DialContext: (&net.Dialer{LocalAddr: from}).DialContext,
					}
					if _, _, ok := p.waitInside(ctx); ok {
						entered.Add(1)
					}
					p.Client.CloseIdleConnections()
				}
			})
		}
		pause(ctx, time.Duration(more)*10*time.Millisecond+30*time.Second)
	}
	measure := func() (cores, memory float64) {
		cpu, in, from := cpuOf(t, serve), entered.Load(), time.Now()
		pause(ctx, machineLength)
		cpu, in = cpuOf(t, serve)-cpu, entered.Load()-in
		passed := time.Since(from)
		if least := int64(.9 * machineRate * passed.Minutes()); in < least {
			t.Errorf("%d people entered in %v, want at least %d", in, passed, least)
		}
		cores, memory = float64(cpu)/float64(passed), float64(memoryOf(t, serve, ownMemory))
		t.Logf("%d people wait, %.0f enter a minute: %.3f cores, %.0f MiB", people, float64(in)/passed.Minutes(), cores,
			memory/(1<<20))
		return cores, memory
	}
	few := *machine / 3
	come(few)
	cores, memory := measure()
	come(*machine - few)
	moreCores, moreMemory := measure()
	eachCores := (moreCores - cores) / float64(people-few)
	eachMemory := (moreMemory - memory) / float64(people-few)
	byCPU := float64(few) + (machineHalf*machineCores-cores)/eachCores
	byMemory := float64(few) + (machineHalf*machineMemory-memory)/eachMemory
	t.Logf("each further person: %.1f us of CPU a second, %.1f KiB: half of two cores has %.0f people, half of 4 GB %.0f",
		eachCores*1e6, eachMemory/1024, byCPU, byMemory)
	figures.Check(t, "machine: people that half of two cores and 4 GB lets wait", "", min(byCPU, byMemory))
}
