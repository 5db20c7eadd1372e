"""What ends or outlives something: erasing a person, exporting what is held on one, rewriting what held it."""
