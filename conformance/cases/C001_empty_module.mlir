// C001: a module may be empty
// level: L0
// expected: ok
// tags: text

module {
}
