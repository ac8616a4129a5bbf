"""What several stages, the lowering and the tools read off a module: nothing here changes one."""
