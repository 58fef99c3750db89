namespace tg::wire {}
