from sightline.cli import main

main()
