package embedded

import (
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/node"
)

// Main is the program nats-server of the NATS project, with its flags and configuration. In addition it takes writes
// again by itself once its disk, which was full, has space. It ends the process where nats-server does.
func Main(args []string) {
	fs := flag.NewFlagSet("nats-server", flag.ExitOnError)
	usage := func() {
		fmt.Println("usage: nats-server [flags], as nats-server of the NATS project; see docs.nats.io")
		os.Exit(0)
	}
	opts, err := server.ConfigureOptions(fs, args, server.PrintServerAndExit, usage, server.PrintTLSHelpAndDie)
	if err != nil {
		server.PrintAndDie("nats-server: " + err.Error())
	} else if opts.CheckConfig {
		fmt.Fprintf(os.Stderr, "nats-server: configuration file %s is valid\n", opts.ConfigFile)
		os.Exit(0)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		server.PrintAndDie("nats-server: " + err.Error())
	}
	s.ConfigureLogger()
	if opts.LogFile == "" && !opts.Syslog && opts.RemoteSyslog == "" { // until a reload changes how it logs
		log := newStderrLog(opts)
		defer log.sink.Close()
		s.SetLoggerV2(log, opts.Debug, opts.Trace, opts.TraceVerbose)
	}
	if err := server.Run(s); err != nil {
		server.PrintAndDie("nats-server: " + err.Error())
	}
	if opts.JetStream {
		defer KeepStore(s, opts.StoreDir, opts.JetStreamDomain)()
	}
	s.WaitForShutdown()
}

// stderrLog logs like nats-server does without a file, but neither ends nor blocks the server if nobody reads.
type stderrLog struct {
	sink *node.Sink
	out  *log.Logger
}

func newStderrLog(o *server.Options) stderrLog {
	flags := 0
	if o.Logtime {
		flags = log.LstdFlags | log.Lmicroseconds
	}
	if o.Logtime && o.LogtimeUTC {
		flags |= log.LUTC
	}
	sink := node.NewSink(os.Stderr)
	return stderrLog{sink, log.New(sink, fmt.Sprintf("[%d] ", os.Getpid()), flags)}
}

func (l stderrLog) say(label, format string, v []any) { l.out.Printf("["+label+"] "+format, v...) }

func (l stderrLog) Noticef(format string, v ...any) { l.say("INF", format, v) }
func (l stderrLog) Warnf(format string, v ...any)   { l.say("WRN", format, v) }
func (l stderrLog) Errorf(format string, v ...any)  { l.say("ERR", format, v) }
func (l stderrLog) Debugf(format string, v ...any)  { l.say("DBG", format, v) }
func (l stderrLog) Tracef(format string, v ...any)  { l.say("TRC", format, v) }

// Fatalf ends the process, as that of nats-server.
func (l stderrLog) Fatalf(format string, v ...any) {
	l.say("FTL", format, v)
	l.sink.Close()
	os.Exit(1)
}
