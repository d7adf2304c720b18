//go:build !linux

// Command fanout measures on Linux only: it needs epoll and /proc.
package main

func main() { panic("fanout: only on Linux") }
