// Package natsauth makes the configurations with which a NATS server lets each part of
// cbcast do what it needs and nothing else: permissions by role, static accounts, and
// keys and JWTs of an operator, its accounts and users. docs/security.md says how to
// use them; test/perm tries them, and everything that they must prevent, on a server.
package natsauth
