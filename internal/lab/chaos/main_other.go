//go:build !linux

// Command chaos injects faults into a whole deployment by seed. It needs Linux.
package main

import "fmt"

func main() { fmt.Println("chaos: not run: it needs Linux") }
