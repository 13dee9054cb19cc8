// Command nats-server is nats-server of the NATS project, with its flags and configuration. In addition it takes writes
// again by itself once its disk, which was full, has space.
package main

import (
	"os"

	"vestibule/internal/node/natsbus/embedded"
)

func main() { embedded.Main(os.Args[1:]) }
