package figures

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Load is what a machine did since this process began, beside this process and its children.
type Load struct {
	Average float64 // of a minute
	Others  float64 // share of the cores that other processes used
	Steal   float64 // share of the cores that other machines used
	Crowded bool    // tests run beside each other
}

// Crowded is the environment variable that says that tests run beside each other; `make test` sets it.
const Crowded = "TESTS_CROWDED"

// Above these shares, real time is not judged.
const (
	mostOthers = 0.10
	mostSteal  = 0.02
)

// Busy reports whether others worked, or other tests.
func (l Load) Busy() bool { return l.Crowded || l.Others > mostOthers || l.Steal > mostSteal }

func (l Load) String() string {
	return fmt.Sprintf("load %.1f, steal %.0f %%, other processes used %.0f %% of the cores", l.Average, 100*l.Steal,
		100*l.Others)
}

// cpuTime is time of all cores, in ticks.
type cpuTime struct{ busy, steal float64 }

// ticks is USER_HZ of Linux.
const ticks = 100

var (
	began     = time.Now()
	beganWith = machineTime()
	beganOwn  = ownTime()
)

// LoadNow returns the load since the start of the process. It is zero where there is no /proc.
func LoadNow() (l Load) {
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		l.Average, _ = strconv.ParseFloat(strings.Fields(string(data))[0], 64)
	}
	l.Crowded = os.Getenv(Crowded) != ""
	passed := time.Since(began).Seconds() * ticks * float64(runtime.NumCPU())
	now := machineTime()
	l.Steal = max(0, now.steal-beganWith.steal) / passed
	l.Others = max(0, now.busy-beganWith.busy-(ownTime()-beganOwn)) / passed
	return l
}

// machineTime returns what all processes have used. Interrupts belong to nobody.
func machineTime() (c cpuTime) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c
	}
	fields := strings.Fields(strings.SplitN(string(data), "\n", 2)[0]) // cpu user nice system idle iowait irq softirq steal
	if len(fields) < 9 {
		return c
	}
	for _, i := range []int{1, 2, 3} {
		v, _ := strconv.ParseFloat(fields[i], 64)
		c.busy += v
	}
	c.steal, _ = strconv.ParseFloat(fields[8], 64)
	return c
}

// ownTime returns what this process, its children that ended, and its descendants have used.
func ownTime() (sum float64) {
	type process struct {
		parent int
		time   float64
	}
	all := map[int]process{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		text := string(data)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) < 15 {
			continue
		}
		var p process
		p.parent, _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] { // of its own and of children that it waited for
			v, _ := strconv.ParseFloat(f, 64)
			p.time += v
		}
		all[pid] = p
	}
	link, err := os.Readlink("/proc/self") // os.Getpid is of another namespace in the chaos lab
	if err != nil {
		return 0
	}
	self, err := strconv.Atoi(link)
	if err != nil {
		return 0
	}
	for pid, p := range all {
		for at, steps := pid, 0; at > 0 && steps < 100; at, steps = all[at].parent, steps+1 {
			if at == self {
				sum += p.time
				break
			}
		}
	}
	return sum
}
