// Package compose has compose.yaml, and a module of its own, since only its test needs the library of compose files.
package compose
