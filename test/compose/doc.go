// Package compose starts docker-compose.yml for real and takes servers away from it
// while a wrapped agent speaks. `make compose-test` runs it; without an engine it is
// skipped and says so.
package compose
